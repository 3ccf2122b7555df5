"""Plans a verification: groups claims into sections. Pure.

Claims (`sinks/proof/verdicts.py`) are the rows of the ledger and the holes. Small adjoining claims form a **section**,
which a task reads in one go from both sides.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from math import log

from sinks.proof.stored import Part
from sinks.proof.verdicts import Claim
from sinks.values.ledger_row import LedgerRow
from sources.offsets import OffsetRange

SECTION_BYTES = 64_000_000
LARGEST_SECTION_BYTES = 4 * SECTION_BYTES
"""Limits a task's memory: if the offsets of files interleave, it holds a section's rows in memory."""
MOST_READ = 3
"""How many times each byte of the files may be read on average before sections are made larger."""


class At(Enum):
    """What the master has of a claim's range."""

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
        """The same claims in two sections. There must be several."""
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
