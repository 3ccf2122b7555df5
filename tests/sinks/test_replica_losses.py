"""What a replica does when its master lost, damaged or rewrote something."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.books.bookkeeping import Bookkeeping
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger
from sinks.books.quarantine import Quarantine
from sinks.state.log_table import LogTable
from sinks.tables import LOG
from sinks.values.incident import Action
from sources.errors import TakenOver
from sources.loss import Condition
from sources.offsets import OffsetRange
from tests.around import at_each
from tests.sinks.accounts import incident
from tests.sinks.batches import held, ledger, offsets, opened, ranges, state
from tests.sinks.killed import Killed, killed
from tests.sinks.memory_master import BROKER_A, Damaged, MemoryMaster, raw_bytes
from tests.spans import span

SIZES = (10, 90, 300, 5, 5, 90) * 2  # records start at 0, 10, 100, 400, 405, 410, then again from 500; end at 1000
MASTER = MemoryMaster(SIZES)
STARTS = [row["offset"] for row in MASTER.records()]


def quarantine(warehouse: Path) -> list[tuple[int, int, bytes]]:
    rows = DeltaTable(str(warehouse / "quarantine")).to_pyarrow_table().to_pylist()
    return sorted((row["offset"], row["end"], row["bytes"]) for row in rows)


def incidents(plain: SparkSession, warehouse: Path) -> list[tuple[str, OffsetRange, Action]]:
    rows = IncidentsTable(plain, str(warehouse), BROKER_A).all()
    return [(row.found.condition.value, row.found.range, row.found.action) for row in rows]


def test_a_state_without_link_gets_one_with_the_next_commit(plain: SparkSession, tmp_path: Path) -> None:
    opened(plain, tmp_path, MASTER)(ranges(0, 500))
    said = replace(state(plain, tmp_path), link=None, commit="another")
    LogTable(plain, LOG.path(str(tmp_path)), BROKER_A).mark(held(plain, tmp_path), said)
    assert state(plain, tmp_path).link is None
    replica = opened(plain, tmp_path, MASTER)
    replica.prove_master()
    replica(ranges(500, 1000))
    assert state(plain, tmp_path).link is not None
    assert offsets(tmp_path) == STARTS


def test_damage_at_the_edges_of_batches(plain: SparkSession, tmp_path: Path) -> None:
    """The first record, the last of a batch, a batch of nothing else, the one after it; and the log begins later."""
    master = Damaged(SIZES, bad=(100, 410, 500, 510))
    replica = opened(plain, tmp_path, master)
    replica(ranges(100, 410))
    assert (state(plain, tmp_path).first, replica.position()) == (100, 410)
    assert held(plain, tmp_path).holes.ranges == (span(0, 400),)
    replica(ranges(410, 450))
    assert (replica.position(), state(plain, tmp_path).link) == (500, None)
    replica(ranges(450, 600))
    replica.prove_master()
    holes = held(plain, tmp_path).holes
    replica(ranges(600, 1000))
    assert offsets(tmp_path) == [400, 405, 600, 900, 905, 910]
    assert held(plain, tmp_path).holes == holes  # the very same: a backfill may be writing them
    assert holes.ranges == (span(0, 400), span(410, 600))
    bad = [raw_bytes(row) for row in MASTER.records() if row["offset"] in master.bad]
    assert b"".join(raw for _, _, raw in quarantine(tmp_path)) == b"".join(bad)


@pytest.mark.parametrize("killed_in", [(Ledger, "append_each"), (Quarantine, "append"), (IncidentsTable, "record")])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_crash_around_each_of_what_follows_the_commit_leaves_one_copy(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_in: tuple[type, str], is_done: bool
) -> None:
    master = Damaged(SIZES, bad=(100,))
    replica = opened(plain, tmp_path, master)
    with monkeypatch.context() as patched:
        at_each(patched, *killed_in, killed, after=is_done)
        with pytest.raises(Killed):
            replica(ranges(0, 500, 200))
    check_restart(plain, tmp_path, master)


def check_restart(plain: SparkSession, warehouse: Path, master: MemoryMaster) -> None:
    replica = opened(plain, warehouse, master)
    replica(ranges(replica.position() or 0, 1000))
    assert offsets(warehouse) == [start for start in STARTS if start != 100]
    assert [(start, end) for start, end, _ in quarantine(warehouse)] == [(100, 250), (250, 400)]
    assert incidents(plain, warehouse) == [("checksum_failure", span(100, 400), Action.QUARANTINED)]
    covered = sorted([(row["start"], row["end"]) for row in ledger(warehouse)] + [(100, 400)])
    assert (covered[0][0], covered[-1][1]) == (0, 1000)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(covered))


OVERTAKEN = incident(500, 900, Condition.BELOW_MINIMUM)


def test_a_crash_after_the_commit_that_passes_leaves_one_incident(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(0, 500))

    with monkeypatch.context() as patched:
        patched.setattr(Bookkeeping, "settle", killed)
        with pytest.raises(Killed):
            replica.skip(OVERTAKEN)
    assert opened(plain, tmp_path, MASTER).position() == 900
    assert incidents(plain, tmp_path) == [("below_minimum", span(500, 900), Action.SKIPPED)]


def test_only_the_owner_skips_and_only_from_its_position(plain: SparkSession, tmp_path: Path) -> None:
    old = opened(plain, tmp_path, MASTER)
    old(ranges(0, 400))
    with pytest.raises(ValueError, match="does not begin at the position"):
        old.skip(OVERTAKEN)
    old(ranges(400, 500))
    opened(plain, tmp_path, MASTER)
    with pytest.raises(TakenOver):
        old.skip(OVERTAKEN)
    assert state(plain, tmp_path).offset == 500
    assert incidents(plain, tmp_path) == []
