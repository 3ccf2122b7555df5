"""Which ids at the end of a hole are free, as a source that holds the lost entries says."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import pytest

from sinks.healing.free_ids import free_at_end
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.memory_master import MemoryMaster

DISTER = LogId("dister", "a")
IDS = (100, 250, 260, 700, 5000)


@dataclass(frozen=True, slots=True)
class Entries(MemoryMaster):
    """A log of entries with these IDs."""

    log_id: LogId = DISTER

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        ends = [0, *(entry_id + 1 for entry_id in IDS)]
        return Offset(min(ends[bisect_left(ends, offset)], maximum))


def between(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


HELD = between(0, 5001)


@pytest.mark.parametrize(
    ("hole", "free"),
    [
        (between(101, 700), between(261, 700)),  # 250 and 260 were lost, and nobody knew which was the last
        (between(101, 261), between(261, 261)),  # it ends with an entry
        (between(251, 260), between(251, 260)),  # nothing was lost: there was a line too many
        (between(0, 100), between(0, 100)),
        (between(101, 699), between(699, 699)),  # the source has no entry there: it is another log
        (between(261, 5001), between(5001, 5001)),  # it does not know what comes behind
    ],
)
def test_the_ids_behind_the_last_lost_entry(hole: OffsetRange, free: OffsetRange) -> None:
    assert free_at_end(hole, Entries(()), HELD) == free


def test_a_source_that_begins_in_the_hole() -> None:
    assert free_at_end(between(101, 700), Entries(()), between(251, 5001)) == between(261, 700)


def test_bytes_are_never_free() -> None:
    assert free_at_end(between(101, 700), Entries((), log_id=LogId("rocketmq", "a")), HELD) == between(700, 700)
