"""The sections of a verification: planned on the driver, compared in tasks, remembered once they are proven.

Claims (`sinks/proof/verdicts.py`) are the rows of the ledger and the holes. Small adjoining claims form a **section**,
which a task reads in one go from both sides, without Spark. Unreadable data is a verdict on the claims that it
concerns: such a section is compared again in halves, down to those claims. Only a master or a table's storage that is
away ends the task, and with it the run, which a rerun continues.

A killed verification continues: ``<warehouse>/_verify/<log id>.json`` holds what was asked for, and a key for each
section that was proven equal. The key is made from the ledger's ranges and checksums: so sections that a repair or a
backfill has changed since are compared again, as are those that differed. A finished run leaves no file.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import groupby
from math import log

import pyarrow as pa

from sinks.proof.comparison import compare
from sinks.proof.master_bytes import master_bytes
from sinks.proof.stored import Part, read
from sinks.proof.verdicts import Claim, Compared, Verdict
from sinks.storage.place import SmallFile
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import absolute
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    LogError,
    LogtwinError,
    OffsetOutOfRange,
    ReplicaError,
    StorageUnreachable,
)
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

SECTION_BYTES = 64_000_000
LARGEST_SECTION_BYTES = 4 * SECTION_BYTES
"""Limits a task's memory: if the offsets of files interleave, it holds a section's rows in memory."""
MOST_READ = 3
"""How many times each byte of the files may be read on average before sections are made larger."""


class At(Enum):
    """How much of a claim's range the master has."""

    MASTER = "master"  # all of it
    GONE = "gone"  # not all of it any more: its retention took the beginning
    BEYOND = "beyond"  # its log ends before the range does
    HOLE = "hole"  # nothing to compare


@dataclass(frozen=True, slots=True)
class ClaimSection:
    """Adjoining claims, what the master has of them, and the files that may hold their rows. Picklable."""

    claims: tuple[Claim, ...]
    at: At
    parts: tuple[Part, ...] = ()

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.claims[0].range.start, self.claims[-1].range.end)

    @property
    def compared_bytes(self) -> int:
        """How many bytes of the log are compared; none of a hole."""
        return sum(claim.bytes for claim in self.claims)

    def halves(self) -> tuple[ClaimSection, ClaimSection]:
        """Cut into two sections. There must be several claims."""
        middle = len(self.claims) // 2
        return replace(self, claims=self.claims[:middle]), replace(self, claims=self.claims[middle:])


def claims_of(ledger: Iterable[LedgerRow], holes: Iterable[OffsetRange], wanted: OffsetRange) -> list[Claim]:
    """The claims of the tables that overlap `wanted`, in order."""
    rows = (Claim(row.range, row.checksum, row.records, row.bytes) for row in ledger)
    claims = (*rows, *(Claim(hole) for hole in holes))
    return sorted((one for one in claims if one.range.overlaps(wanted)), key=lambda one: one.range)


def sections(claims: Sequence[Claim], held: OffsetRange | None, parts: Sequence[Part]) -> list[ClaimSection]:
    """Group `claims`, which are in order, into sections of about SECTION_BYTES, each with its files.

    `held` is what the master holds; None if it cannot tell. If the files' offsets interleave, so that each file would
    be read for many sections, sections are larger. A hole without files needs no look and is left out.
    """
    size_bytes = SECTION_BYTES
    while True:
        found = list(_with_parts(_cut(claims, held, size_bytes), parts))
        read_bytes = sum(part.size_bytes for section in found for part in section.parts)
        if size_bytes >= LARGEST_SECTION_BYTES or read_bytes <= MOST_READ * sum(part.size_bytes for part in parts):
            return [section for section in found if section.parts or section.at is not At.HOLE]
        size_bytes *= 2


def sampled(found: Sequence[ClaimSection], share: float, seed: int) -> list[ClaimSection]:
    """Draw sections with at least `share` of all bytes, by `seed`; at least one, if there are any.

    The chance of each is in proportion to its bytes, so that the share is one of bytes, however sections differ in
    size. It is weighted sampling without replacement (Efraimidis and Spirakis, 2006): the smallest -ln(u)/weight, with
    random u, comes first.
    """
    wanted = share * sum(map(_weight, found))
    chosen: list[ClaimSection] = []
    reached = 0
    for section in sorted(found, key=lambda section: -log(_drawn(section, seed)) / _weight(section)):
        if reached >= wanted:
            break
        chosen.append(section)
        reached += _weight(section)
    return sorted(chosen, key=lambda section: section.range)


def _weight(section: ClaimSection) -> int:
    """The bytes of a section, at least 1: files in a hole have to be looked at, too."""
    return max(1, section.compared_bytes)


def _drawn(section: ClaimSection, seed: int) -> float:
    """A random number above 0 and up to 1, always the same for a section and a seed."""
    digest = hashlib.sha256(f"{seed} {section.range.start}".encode()).digest()
    return (int.from_bytes(digest[:8]) + 1) / 2**64


def _cut(claims: Sequence[Claim], held: OffsetRange | None, size_bytes: int) -> Iterator[ClaimSection]:
    for at, alike in groupby(claims, key=lambda claim: _at(claim, held)):
        together: list[Claim] = []
        together_bytes = 0
        for claim in alike:
            if together and (claim.range.start != together[-1].range.end or together_bytes + claim.bytes > size_bytes):
                yield ClaimSection(tuple(together), at)
                together, together_bytes = [], 0
            together.append(claim)
            together_bytes += claim.bytes
        yield ClaimSection(tuple(together), at)


def _at(claim: Claim, held: OffsetRange | None) -> At:
    if claim.is_hole:
        return At.HOLE
    if held is None or held.holds(claim.range):
        return At.MASTER
    return At.BEYOND if claim.range.end > held.end else At.GONE


def _with_parts(found: Iterable[ClaimSection], parts: Sequence[Part]) -> Iterator[ClaimSection]:
    """The sections `found`, in order, each with the parts that may hold its rows."""
    waiting = deque(sorted(parts, key=lambda part: part.range))
    near: list[Part] = []
    for section in found:
        while waiting and waiting[0].range.start < section.range.end:
            near.append(waiting.popleft())
        near = [part for part in near if part.range.end > section.range.start]
        yield replace(section, parts=tuple(near))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request of a run: a range to compare with the master at `place`, or a `share` of sections, by `seed`."""

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


class Throttle:
    """Keeps the average rate since the first byte below a limit, at every moment. None is no limit."""

    def __init__(
        self,
        bytes_per_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._began_s: float | None = None
        self._spent_bytes = 0

    def spend(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may be spent."""
        if self._bytes_per_s is None:
            return
        if self._began_s is None:
            self._began_s = self._clock()
        self._spent_bytes += size_bytes
        early_s = self._began_s + self._spent_bytes / self._bytes_per_s - self._clock()
        if early_s > 0:
            self._sleep(early_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionComparer:
    """The picklable task function. `folder` is the log table's; `bytes_per_s` limits one task."""

    master: MasterLog
    folder: str
    position: Offset
    bytes_per_s: float | None

    def __call__(self, sections: Iterable[ClaimSection]) -> Iterator[tuple[ClaimSection, list[Compared]]]:
        """Compare each section. Yields it with the results for its claims."""
        throttle = Throttle(self.bytes_per_s)
        for section in sections:
            try:
                yield section, self.compared(section, throttle)
            except LogtwinError as error:
                raise RuntimeError(error.at(self.master.log_id).token()) from error

    def compared(self, section: ClaimSection, throttle: Throttle) -> list[Compared]:
        """Compare one section. Raises MasterError or StorageUnreachable if master or storage is away."""
        try:
            return self._compare(section, throttle)
        except StorageUnreachable:  # says nothing of the bytes
            raise
        except (ReplicaError, LogError, OffsetOutOfRange) as error:
            failed = error.at(self.master.log_id)
        if len(section.claims) > 1:
            return [one for half in section.halves() for one in self.compared(half, throttle)]
        return [self._judged(section, failed, throttle)]

    def _compare(self, section: ClaimSection, throttle: Throttle) -> list[Compared]:
        columns = tuple(dict.fromkeys(("offset", *self.master.traits.restored_from, *self.master.traits.measured_by)))
        rows = self._paced(read(self.folder, section.parts, self.master.log_id, section.range, columns), throttle)
        with master_bytes(self.master, section.range, self.position) as held:
            found = list(compare(section.claims, rows, held if section.at is At.MASTER else None, self.master))
        return [_unless_worse(one, Verdict.MASTER_LACKS) for one in found] if section.at is At.BEYOND else found

    def _judged(self, section: ClaimSection, error: LogtwinError, throttle: Throttle) -> Compared:
        """The result for a single claim that could not be read from the replica or the master."""
        if isinstance(error, ReplicaError):
            return Compared(claim=section.claims[0], verdict=Verdict.UNREADABLE, error=str(error))
        (alone,) = self.compared(replace(section, at=At.GONE), throttle)
        if isinstance(error, BelowMinimum):  # the master's retention deleted it meanwhile
            return alone
        verdict = Verdict.MASTER_LACKS if isinstance(error, AboveMaximum) else Verdict.MASTER_UNREADABLE
        return _unless_worse(alone, verdict, str(error))

    def _paced(self, batches: Iterable[pa.RecordBatch], throttle: Throttle) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            throttle.spend(int(self.master.lengths(batch).sum()))
            yield batch


def _unless_worse(found: Compared, verdict: Verdict, error: str | None = None) -> Compared:
    """Return `found` with `verdict` if it equals the ledger; otherwise unchanged, because its own verdict is worse."""
    return replace(found, verdict=verdict, error=error) if found.verdict is Verdict.EQUAL else found
