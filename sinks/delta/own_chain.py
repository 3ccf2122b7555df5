"""What is known of a table for as long as nobody but its owner has committed to it. Pure.

Asking the JVM what each of many logs has in a version takes a millisecond a log. A version that this run made of the
one before it says what that said, and what this run has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OwnChain(Generic[K, V]):
    """Values by name, of the newest of consecutive versions that this run has made."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[K, V] = {}

    def value(self, version: int, name: K, ask: Callable[[], V]) -> V:
        """What `name` has at `version`: known, or asked for."""
        if version != self._version:
            self._version, self._known = version, {}
        if name not in self._known:
            self._known[name] = ask()
        return self._known[name]

    def committed(self, on: int, version: int, changed: Mapping[K, V]) -> None:
        """A commit of this run, built on version `on`, has made `version`, where these have changed."""
        if on == self._version and version == on + 1:
            self._known.update(changed)
            self._version = version
        else:  # others have committed in between
            self._version, self._known = None, {}
