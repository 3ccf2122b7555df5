"""A cache of a table's values that is valid as long as only this run commits to the table. Pure.

Asking the JVM for the values of many logs takes long. A version that this run has made has
the values of the version before it, except for those that this run has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OwnChain(Generic[K, V]):
    """Values by name, at the newest of consecutive versions that this run has made."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[K, V] = {}

    def values(self, version: int, names: Iterable[K], ask: Callable[[Sequence[K]], Mapping[K, V]]) -> dict[K, V]:
        """The values of `names` at `version`: the known ones, and the results of one `ask` for the others."""
        if version != self._version:
            self._version, self._known = version, {}
        wanted = list(names)
        if unknown := [name for name in wanted if name not in self._known]:
            self._known |= ask(unknown)
        return {name: self._known[name] for name in wanted}

    def claimed(self, version: int, values: Mapping[K, V]) -> None:
        """Note that a commit of this run has made `version`, whatever came before, with these `values`."""
        self._version, self._known = version, dict(values)

    def committed(self, on: int, version: int, changed: Mapping[K, V]) -> None:
        """Note that a commit of this run, built on version `on`, has made `version`, with the values `changed`."""
        if on == self._version and version == on + 1:
            self._known.update(changed)
            self._version = version
        else:  # others have committed in between
            self._version, self._known = None, {}
