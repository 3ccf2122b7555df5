"""Which ids at the end of a hole are free, as a source that holds the lost entries says."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import pytest

from sinks.healing.neighbours import free_at_end
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.memory_master import MemoryMaster
from tests.spans import span

DISTER = LogId("dister", "a")
IDS = (100, 250, 260, 700, 5000)


@dataclass(frozen=True, slots=True)
class Entries(MemoryMaster):
    log_id: LogId = DISTER

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        ends = [0, *(entry_id + 1 for entry_id in IDS)]
        return Offset(min(ends[bisect_left(ends, offset)], maximum))


@pytest.mark.parametrize(
    ("hole", "free", "log", "first"),
    [
        (span(101, 700), span(261, 700), DISTER, 0),  # 250 and 260 were lost, and nobody knew which was the last
        (span(101, 261), span(261, 261), DISTER, 0),  # it ends with an entry
        (span(251, 260), span(251, 260), DISTER, 0),  # nothing was lost: there was a line too many
        (span(0, 100), span(0, 100), DISTER, 0),
        (span(101, 699), span(699, 699), DISTER, 0),  # the source has no entry there: it is another log
        (span(261, 5001), span(5001, 5001), DISTER, 0),  # it does not know what comes behind
        (span(101, 700), span(261, 700), DISTER, 251),  # a source that begins in the hole
        (span(101, 700), span(700, 700), LogId("rocketmq", "a"), 0),  # bytes are never free
    ],
)
def test_the_ids_behind_the_last_lost_entry(hole: OffsetRange, free: OffsetRange, log: LogId, first: int) -> None:
    assert free_at_end(hole, Entries((), log_id=log), span(first, 5001)) == free
