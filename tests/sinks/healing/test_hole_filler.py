"""One batch of a hole: what is proven before it is committed, and who wins where somebody else commits meanwhile."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinks.batch.proof import BatchStep
from sinks.healing.hole_filler import HoleFiller, free_at_end
from sinks.state.log_state import PendingRepair
from sinks.state.log_table import LogTable
from sinks.tables import LOG
from sinks.values.continuity import Link
from sources.errors import CoverageError, LogtwinError, RepairPending, Rewritten
from sources.master import MasterLog
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.accounts import incident
from tests.sinks.batches import held, ledger, offsets, opened, ranges, state
from tests.sinks.memory_master import BROKER_A, Damaged, MemoryMaster, Rewriting, Short, raw_bytes
from tests.sinks.unheard import lose_answers, missing_files
from tests.spans import span

SIZES = (10, 90, 300, 5, 5, 90) * 4  # records start at 0, 10, 100, 400, 405, 410, then again from 500, 1000, 1500
MASTER = MemoryMaster(SIZES)
STARTS = [row["offset"] for row in MASTER.records()]


HOLE = span(500, 1000)
LINK = Link.of(span(410, 500), raw_bytes({"offset": 410, "size": 90}))


@pytest.fixture
def lake(plain: SparkSession, tmp_path: Path) -> Path:
    """[0, 500), a hole, [1000, 1500)."""
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(0, 500))
    replica.skip(incident(HOLE.start, HOLE.end))
    replica(ranges(1000, 1500))
    return tmp_path


def table(plain: SparkSession, lake: Path) -> LogTable:
    return LogTable(plain, LOG.path(str(lake)), BROKER_A)


def data_files(lake: Path) -> set[str]:
    return {path.name for folder in ("log", "quarantine") for path in (lake / folder).glob("*.parquet")}


def backfilled(lake: Path) -> list[Any]:
    return [(row["start"], row["end"], row["records"]) for row in ledger(lake) if row["origin"] == "backfill"]


@pytest.mark.parametrize(
    ("source", "link", "error"),
    [
        (MemoryMaster((10, 90, 300, 5, 5, 90, 250, 300, 1000)), None, CoverageError),  # one lies across offset 1000
        (Rewriting(SIZES, since=0), LINK, Rewritten),
        (Short(SIZES, stop=905), None, CoverageError),
    ],
)
def test_what_is_not_this_log_is_refused(
    plain: SparkSession, lake: Path, source: MasterLog, link: Link | None, error: type[LogtwinError]
) -> None:
    files, version = data_files(lake), held(plain, lake).snapshot.version
    filler = HoleFiller(plain, str(lake), BROKER_A)
    with pytest.raises(error) as caught:
        filler.fill(filler.look(), HOLE, source, link)
    assert caught.value.log == str(BROKER_A)
    assert held(plain, lake).snapshot.version == version
    assert data_files(lake) == files
    assert backfilled(lake) == []


def test_damage_in_the_source_stays_a_hole(plain: SparkSession, lake: Path) -> None:
    source = Damaged(SIZES, bad=(600,), gone=(905,))
    quarantined = {path.name for path in (lake / "quarantine").glob("*.parquet")}
    filler = HoleFiller(plain, str(lake), BROKER_A)
    filled = filler.fill(filler.look(), HOLE, source, LINK)
    assert filled is not None
    left = (span(600, 900), span(905, 910))
    assert (filled.range, filled.ranges) == (HOLE, (span(500, 600), span(900, 905), span(910, 1000)))
    assert held(plain, lake).holes.ranges == left
    assert {path.name for path in (lake / "quarantine").glob("*.parquet")} == quarantined
    # all of what is left is damaged: nothing to commit
    version = held(plain, lake).snapshot.version
    again = filler.fill(filler.look(), left[0], source, None)
    assert again is not None
    assert (again.range, again.ranges, again.link) == (left[0], (), None)
    assert held(plain, lake).snapshot.version == version


def test_another_loss_in_between_does_not_disturb(plain: SparkSession, lake: Path) -> None:
    """The stream makes a hole of its own: the same metadata, and the fill is made anew on top of it."""
    replica = opened(plain, lake, MASTER)
    done: list[BatchStep] = []

    def lose(step: BatchStep) -> None:
        if not done:
            replica.skip(incident(1500, 1600))
        done.append(step)

    filler = HoleFiller(plain, str(lake), BROKER_A, lose)
    assert filler.fill(filler.look(), HOLE, MASTER, LINK) is not None
    found = held(plain, lake)
    assert found.holes.ranges == (span(1500, 1600),)
    assert state(plain, lake).offset == 1600
    assert backfilled(lake) == [(500, 600, 2), (600, 900, 1), (900, 1000, 3)]


def test_a_commit_that_landed_unheard_is_a_success(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch)
    filler = HoleFiller(plain, str(lake), BROKER_A)
    assert filler.fill(filler.look(), HOLE, MASTER, LINK) is not None
    assert lost == {"log": 1, "ledger": 1}
    assert missing_files(lake) == []
    assert offsets(lake) == [start for start in STARTS if start < 1500]
    assert backfilled(lake) == [(500, 600, 2), (600, 900, 1), (900, 1000, 3)]


def test_a_repair_that_was_marked_in_between_keeps_the_fill_out(plain: SparkSession, lake: Path) -> None:
    def mark(step: BatchStep) -> None:
        found = held(plain, lake)
        pending = PendingRepair(to=HOLE.end, epoch=1)
        table(plain, lake).mark(found, replace(state(plain, lake), repair=pending, commit="marked"))

    filler = HoleFiller(plain, str(lake), BROKER_A, mark)
    assert filler.fill(filler.look(), HOLE, MASTER, LINK) is None
    assert held(plain, lake).holes.ranges == (HOLE,)
    with pytest.raises(RepairPending):
        filler.look()


def test_a_repair_in_between_wins(plain: SparkSession, lake: Path) -> None:
    def repair(step: BatchStep) -> None:
        if step is BatchStep.FILES:  # the position, and its transaction version, move back
            back = replace(state(plain, lake), epoch=1, offset=Offset(1000), commit="repaired", ledger=())
            table(plain, lake).cut(held(plain, lake), back, span(1000, 1500), lambda holes: holes.below(Offset(1000)))

    filler = HoleFiller(plain, str(lake), BROKER_A, repair)
    assert filler.fill(filler.look(), HOLE, MASTER, LINK) is None
    assert offsets(lake) == [start for start in STARTS if start < 500]
    assert held(plain, lake).holes.ranges == (HOLE,)
    # and then it is filled in the new epoch
    again = HoleFiller(plain, str(lake), BROKER_A)
    assert again.fill(again.look(), HOLE, MASTER, LINK) is not None
    assert {row["epoch"] for row in ledger(lake) if row["origin"] == "backfill"} == {1}


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
