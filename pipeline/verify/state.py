"""How far a verification has come, so that one that was killed goes on: ``<warehouse>/_verify/<log id>.json``.

It holds what was asked for, and a key for each section that was proven equal, made of the ledger's own words: what a
repair or a backfill has changed since is compared again, as is what differed. A finished run leaves no file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from pipeline.verify.plan import Section
from sinks.storage.small_file import SmallFile
from sinks.warehouse import absolute


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run compares: a range, with the master at `place`; of its sections a `share`, which `seed` chooses."""

    place: str
    epoch: int
    start: int | None = None
    end: int | None = None
    share: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyState:
    """A run that goes on: since when (ISO 8601, UTC), and the keys of the sections that are proven."""

    asked: Asked
    begun_at: str
    proven: frozenset[str] = frozenset()

    def as_json(self) -> str:
        return json.dumps({"asked": asdict(self.asked), "begun_at": self.begun_at, "proven": sorted(self.proven)})

    @classmethod
    def from_json(cls, text: bytes) -> VerifyState:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for what it did not write."""
        values = json.loads(text)
        return cls(asked=Asked(**values["asked"]), begun_at=values["begun_at"], proven=frozenset(values["proven"]))

    def holds(self, section: Section) -> bool:
        return key_of(section) in self.proven

    def with_proven(self, sections: Iterable[Section]) -> VerifyState:
        return replace(self, proven=self.proven.union(map(key_of, sections)))


def key_of(section: Section) -> str:
    """The section's claims, as 16 hex digits."""
    words = [f"{claim.range} {claim.checksum}" for claim in section.claims]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


class VerifyFile:
    """The file of one log. Raises OSError where its place cannot be reached."""

    def __init__(self, warehouse: str, log_id: str) -> None:
        self._file = SmallFile(f"{absolute(warehouse)}/_verify/{log_id}.json")

    def read(self) -> VerifyState | None:
        """The run that was not finished; None without one, or where it speaks in words of another version."""
        content = self._file.read()
        try:
            return None if content is None else VerifyState.from_json(content)
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, state: VerifyState) -> None:
        """At once: a kill leaves what was there before, or this."""
        self._file.write(state.as_json().encode())

    def remove(self) -> None:
        self._file.remove()
