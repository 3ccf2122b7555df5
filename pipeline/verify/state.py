"""The state of a verification, so that a killed one can continue: ``<warehouse>/_verify/<log id>.json``.

It holds what was asked for, and a key for each section that was proven equal. The key is made from the ledger's ranges
and checksums: so sections that a repair or a backfill has changed since are compared again, as are those that differed.
A finished run leaves no file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from pipeline.verify.plan import ClaimSection
from sinks.storage.place import SmallFile
from sinks.warehouse import absolute


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run compares: a range with the master at `place`, or a `share` of its sections that `seed` chooses."""

    place: str
    epoch: int
    start: int | None = None
    end: int | None = None
    share: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyState:
    """The state of a run: when it began (ISO 8601, UTC), and the keys of the sections that are proven equal."""

    asked: Asked
    begun_at: str
    proven: frozenset[str] = frozenset()

    def as_json(self) -> str:
        return json.dumps({"asked": asdict(self.asked), "begun_at": self.begun_at, "proven": sorted(self.proven)})

    @classmethod
    def from_json(cls, text: bytes) -> VerifyState:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for any other text."""
        values = json.loads(text)
        return cls(asked=Asked(**values["asked"]), begun_at=values["begun_at"], proven=frozenset(values["proven"]))

    def holds(self, section: ClaimSection) -> bool:
        return key_of(section) in self.proven

    def with_proven(self, sections: Iterable[ClaimSection]) -> VerifyState:
        return replace(self, proven=self.proven.union(map(key_of, sections)))


def key_of(section: ClaimSection) -> str:
    """A hash of the section's claims, as 16 hex digits."""
    words = [f"{claim.range} {claim.checksum}" for claim in section.claims]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


class VerifyFile:
    """The file of one log. Every method raises OSError if its storage cannot be reached."""

    def __init__(self, warehouse: str, log_id: str) -> None:
        self._file = SmallFile(f"{absolute(warehouse)}/_verify/{log_id}.json")

    def read(self) -> VerifyState | None:
        """The unfinished run; None if there is none, or another version wrote it and this one cannot parse it."""
        content = self._file.read()
        try:
            return None if content is None else VerifyState.from_json(content)
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, state: VerifyState) -> None:
        """Write atomically: a kill leaves the old content or the new."""
        self._file.write(state.as_json().encode())

    def remove(self) -> None:
        self._file.remove()
