"""A cache of a table's values that is valid as long as only this run commits to the table. Pure.

Asking the JVM for the values of many logs at a version takes a millisecond a log. A version that this run has made has
the values of the version before it, except for those that this run has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OwnChain(Generic[K, V]):
    """Values by name, at the newest of consecutive versions that this run has made."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[K, V] = {}

    def value(self, version: int, name: K, ask: Callable[[], V]) -> V:
        """The value of `name` at `version`: the known one, or the result of `ask`."""
        if version != self._version:
            self._version, self._known = version, {}
        if name not in self._known:
            self._known[name] = ask()
        return self._known[name]

    def committed(self, on: int, version: int, changed: Mapping[K, V]) -> None:
        """Note that a commit of this run, built on version `on`, has made `version`, with the values `changed`."""
        if on == self._version and version == on + 1:
            self._known.update(changed)
            self._version = version
        else:  # others have committed in between
            self._version, self._known = None, {}
