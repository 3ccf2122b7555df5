"""How far a verification has come, so that one that was killed goes on: ``<warehouse>/_verify/<log id>.json``.

It holds what was asked for, and a key for each section that was proven equal, made of the ledger's own words: what a
repair or a backfill has changed since is compared again, as is what differed. A finished run leaves no file.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pipeline.verification.plan import Section
from sinks.place import placed
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
        place = placed(f"{absolute(warehouse)}/_verify")
        self._is_local = place.local is not None
        self._filesystem, folder = place.open()
        self._path = f"{folder.rstrip('/')}/{log_id}.json"

    def read(self) -> VerifyState | None:
        """The run that was not finished; None without one, or where it speaks in words of another version."""
        try:
            with self._filesystem.open_input_stream(self._path) as stream:
                return VerifyState.from_json(stream.readall())
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None

    def write(self, state: VerifyState) -> None:
        """At once: a kill leaves what was there before, or this."""
        self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
        if self._is_local:
            new = Path(f"{self._path}.{uuid.uuid4().hex}")
            new.write_text(state.as_json())
            new.replace(self._path)
            return
        with self._filesystem.open_output_stream(self._path) as stream:
            stream.write(state.as_json().encode())

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path)
