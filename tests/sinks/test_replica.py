"""Batches end to end: from a master in memory into the tables."""

from __future__ import annotations

import hashlib
import shutil
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sinks.batch.result import BatchStep
from sinks.spark_schemas import spark_schema
from sinks.state.position import LogTable
from sinks.tables import LOG
from sources.errors import (
    CorruptRecord,
    CoverageError,
    Gap,
    LogtwinError,
    MasterUnreachable,
    ReplicaError,
    TakenOver,
    find_error,
)
from sources.offsets import Offset, OffsetRange
from tests.sinks.batches import Solo, ledger, log, offsets, opened, ranges
from tests.sinks.memory_master import (
    BROKER_A,
    Doubling,
    Failing,
    Holed,
    HoledInside,
    MemoryMaster,
    RecordingSession,
    Short,
    raw_bytes,
)

SIZES = (10, 90, 300, 5, 5, 90) * 4  # records start at 0, 10, 100, 400, 405, 410, then again from 500, 1000, 1500
MASTER = MemoryMaster(SIZES)
STARTS = [row["offset"] for row in MASTER.records()]


class Killed(BaseException):
    """The end of the process, as far as the code under test can tell."""


def table_position(plain: SparkSession, warehouse: Path) -> Offset | None:
    state = LogTable(plain, LOG.path(str(warehouse)), BROKER_A).read().state
    return None if state is None else state.offset


def data_files(warehouse: Path) -> int:
    return len(list((warehouse / "log").glob("*.parquet")))


def check_ledger(warehouse: Path, end: int) -> None:
    """Its ranges join from 0 to `end`, and each says what the master's bytes say."""
    rows = MASTER.records()
    reached = 0
    for entry in ledger(warehouse):
        mine = [row for row in rows if entry["start"] <= row["offset"] < entry["end"]]
        digest = hashlib.sha256(b"".join(raw_bytes(row) for row in mine)).hexdigest()
        assert entry["start"] == reached
        assert (entry["records"], entry["bytes"]) == (len(mine), sum(row["size"] for row in mine))
        assert entry["checksum"] == f"sha256:{digest}"
        assert (entry["log_id"], entry["epoch"], entry["origin"]) == ("rocketmq/broker-a", 0, "stream")
        reached = entry["end"]
    assert reached == end


@pytest.mark.spark
def test_every_field_of_every_record_arrives(spark: SparkSession, tmp_path: Path) -> None:
    replica = opened(spark, tmp_path, MASTER)
    replica(ranges(0, 1100, 250))
    replica(ranges(1100, 2000))
    rows = [{"log_id": "rocketmq/broker-a", "epoch": 0, **row} for row in MASTER.records()]
    expected = spark.createDataFrame([tuple(row.values()) for row in rows], spark_schema(LOG.schema))
    assert_df_equality(log(spark, tmp_path), expected, ignore_metadata=True)


def test_append_overlap_replay(plain: SparkSession, tmp_path: Path) -> None:
    session = RecordingSession()
    replica = opened(plain, tmp_path, MASTER, session)
    replica(ranges(0, 150, 40))
    assert replica.position() == 400  # the record at 100 belongs to the batch and reaches past its end
    assert replica.last is not None
    assert (replica.last.range, replica.last.records, replica.last.is_overlap) == (span(0, 400), 3, False)
    replica(ranges(150, 600, 100))
    assert (replica.last.range, replica.last.is_overlap) == (span(400, 600), True)
    replica(ranges(150, 600, 100))
    assert (replica.last.range, replica.last.records) == (span(600, 600), 0)
    assert session.promises == [400, 600, 600]
    assert offsets(tmp_path) == [start for start in STARTS if start < 600]
    assert table_position(plain, tmp_path) == 600
    check_ledger(tmp_path, 600)


def test_a_warehouse_may_have_any_name(plain: SparkSession, tmp_path: Path) -> None:
    warehouse = tmp_path / "100% ä b#c"
    opened(plain, warehouse, MASTER)(ranges(0, 2000))
    assert offsets(warehouse) == STARTS
    assert len(ledger(warehouse)) == 1


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


def test_a_replica_may_begin_in_the_middle(plain: SparkSession, tmp_path: Path) -> None:
    """HA-40."""
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(500, 1000))
    state = LogTable(plain, LOG.path(str(tmp_path)), BROKER_A).read().state
    assert state is not None
    assert (state.first, state.offset) == (500, 1000)


def test_a_batch_of_nothing_but_a_blank(plain: SparkSession, tmp_path: Path) -> None:
    """The end of a segment file: a file whose clustering columns hold no value at all."""
    blank = next(row for row in MASTER.records() if row["kind"] == "blank")
    start, end = blank["offset"], blank["offset"] + blank["size"]
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(0, start))
    replica(ranges(start, end))
    assert offsets(tmp_path) == [offset for offset in STARTS if offset < end]
    (entry,) = [entry for entry in ledger(tmp_path) if entry["start"] == start]
    assert (entry["records"], entry["first_store_timestamp"], entry["last_store_timestamp"]) == (1, None, None)


def test_splits_that_are_cut_at_records(plain: SparkSession, tmp_path: Path) -> None:
    replica = opened(plain, tmp_path, MemoryMaster(SIZES, cuts_at_records=True))
    replica(ranges(0, 2000, 500))
    assert offsets(tmp_path) == STARTS
    assert len(ledger(tmp_path)) == 4


def test_a_batch_without_rows_names_no_log_and_is_nothing(plain: SparkSession, tmp_path: Path) -> None:
    session = RecordingSession()
    replica = opened(plain, tmp_path, MASTER, session)
    replica(ranges(0, 0))
    assert session.promises == []
    replica(ranges(0, 100))
    replica(ranges(100, 100))
    assert (session.promises, session.readings) == ([100], 1)
    assert table_position(plain, tmp_path) == 100


def refused(plain: SparkSession, warehouse: Path, master: MemoryMaster, start: int, end: int) -> LogtwinError:
    """A batch after [0, 100) that must not become visible in any way."""
    session = RecordingSession()
    opened(plain, warehouse, MASTER)(ranges(0, 100))
    replica = opened(plain, warehouse, master, session)
    files = data_files(warehouse)
    with pytest.raises(LogtwinError) as caught:
        replica(ranges(start, end, 500))
    assert session.promises == []
    assert table_position(plain, warehouse) == replica.position() == 100
    assert offsets(warehouse) == [0, 10]
    assert data_files(warehouse) == files
    assert len(ledger(warehouse)) == 1
    assert caught.value.log == "rocketmq/broker-a"
    return caught.value


def test_a_gap_is_refused(plain: SparkSession, tmp_path: Path) -> None:
    error = refused(plain, tmp_path, MASTER, 400, 1000)
    assert isinstance(error, Gap)
    assert error.offset == 100


@pytest.mark.parametrize(
    ("master", "offset"),
    [
        (Holed(SIZES, hole=405), 405),
        (HoledInside(SIZES, hole=405), 405),
        (Doubling(SIZES), 600),
        (Short(SIZES, stop=410), 410),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, MemoryMaster) else "",
)
def test_nothing_is_visible_before_the_coverage_is_proven(
    plain: SparkSession, tmp_path: Path, master: MemoryMaster, offset: int
) -> None:
    """HA-41."""
    error = refused(plain, tmp_path, master, 100, 1000)
    assert isinstance(error, CoverageError)
    assert error.offset == offset


def test_a_corrupt_record_comes_back_as_what_it_is(plain: SparkSession, tmp_path: Path) -> None:
    error = refused(plain, tmp_path, Failing(SIZES, error=CorruptRecord("bad checksum", offset=410)), 100, 1000)
    assert isinstance(error, CorruptRecord)
    assert error.offset == 410


def test_a_master_that_is_away_comes_back_as_transient(plain: SparkSession, tmp_path: Path) -> None:
    error = refused(plain, tmp_path, Failing(SIZES, error=MasterUnreachable("no connection")), 100, 1000)
    assert isinstance(error, MasterUnreachable)
    assert error.is_transient


def test_any_other_failure_of_a_task_is_a_defect_that_names_the_log(plain: SparkSession, tmp_path: Path) -> None:
    error = refused(plain, tmp_path, Failing(SIZES, error=KeyError("a defect")), 100, 1000)  # type: ignore[arg-type]
    assert (type(error), error.log, error.offset) == (LogtwinError, "rocketmq/broker-a", 100)
    assert str(error.found).endswith("\nKeyError: 'a defect'")
    assert not error.is_transient


def test_splits_of_two_batches_are_refused(plain: SparkSession, tmp_path: Path) -> None:
    replica = opened(plain, tmp_path, MASTER)
    with pytest.raises(CoverageError, match="several batches"):
        replica(ranges(0, 100) + ranges(0, 400))
    assert offsets(tmp_path) == []
    assert data_files(tmp_path) == 0


def test_what_is_acknowledged_is_committed(plain: SparkSession, tmp_path: Path) -> None:
    """HA-45."""

    class Checking(RecordingSession):
        def acknowledge(self, committed: Offset, mark: int | None = None) -> None:
            assert table_position(plain, tmp_path) == committed
            assert offsets(tmp_path) == [start for start in STARTS if start < committed]
            super().acknowledge(committed)

    session = Checking()
    replica = opened(plain, tmp_path, MASTER, session)
    replica(ranges(0, 500, 100))
    replica(ranges(500, 1000))
    assert session.promises == [500, 1000]


def test_the_master_is_proven_when_the_session_has_given_way(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a master that counts connections the proof's would be another replica's, at each restart."""
    seen: list[bool] = []

    raw = MemoryMaster.raw

    def asked(self: MemoryMaster, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        seen.append(session.is_away)
        yield from raw(self, wanted, committed=committed)

    class GivingWay(RecordingSession):
        is_away = False

        @contextmanager
        def reading(self) -> Iterator[None]:
            self.is_away = True
            yield
            self.is_away = False

    monkeypatch.setattr(MemoryMaster, "raw", asked)
    session = GivingWay()
    replica = opened(plain, tmp_path, MASTER, session)
    replica.prove_master()  # of nothing there is no proof, and nobody connects
    replica(ranges(0, 500))
    seen.clear()  # the tasks have asked, too
    replica.prove_master()
    replica.prove_in_turn()  # the session's own
    assert seen == [True, False]


def killed_at(plain: SparkSession, warehouse: Path, step: BatchStep, session: RecordingSession) -> None:
    """[0, 500) committed; the job dies after `step` of [500, 1000)."""

    def die(reached: BatchStep) -> None:
        if reached is step and replica.last is not None:
            raise Killed

    replica = opened(plain, warehouse, MASTER, session, on_step=die)
    replica(ranges(0, 500))
    with pytest.raises(Killed):
        replica(ranges(500, 1000, 100))


@pytest.mark.parametrize(
    ("step", "restart_at"),
    [
        *((step, "checkpoint") for step in BatchStep),
        (BatchStep.FILES, "position"),
        (BatchStep.COMMIT, "position"),
        *(
            pytest.param(step, "position", marks=pytest.mark.soak)
            for step in BatchStep
            if step not in (BatchStep.FILES, BatchStep.COMMIT)
        ),
    ],
)
def test_a_crash_after_any_step_leaves_one_copy(
    plain: SparkSession, tmp_path: Path, step: BatchStep, restart_at: str
) -> None:
    """HA-45."""
    session = RecordingSession()
    killed_at(plain, tmp_path, step, session)
    if step in (BatchStep.FILES, BatchStep.COMMIT):
        assert session.promises == [500]
    replica = Solo(plain, str(tmp_path), MASTER, session)
    position = replica.open()
    assert position == (500 if step is BatchStep.FILES else 1000)
    if restart_at == "checkpoint":
        replica(ranges(500, 1000, 100))
        assert session.promises[-1] == 1000
        position = Offset(1000)
    replica(ranges(position, 2000, 300))
    assert offsets(tmp_path) == STARTS
    assert session.promises[-1] == table_position(plain, tmp_path) == 2000
    check_ledger(tmp_path, 2000)


def test_the_job_that_started_last_owns_the_log(plain: SparkSession, tmp_path: Path) -> None:
    sessions = RecordingSession(), RecordingSession()
    old = opened(plain, tmp_path, MASTER, sessions[0])
    old(ranges(0, 500))
    new = opened(plain, tmp_path, MASTER, sessions[1])
    with pytest.raises(TakenOver):
        old(ranges(500, 1000))
    with pytest.raises(TakenOver):
        old.open()
    new(ranges(500, 1500))
    with pytest.raises(TakenOver):
        old(ranges(500, 1000))
    assert [session.promises for session in sessions] == [[500], [1500]]
    assert offsets(tmp_path) == [start for start in STARTS if start < 1500]
    check_ledger(tmp_path, 1500)


def test_a_replica_that_lost_its_log_finds_out_without_a_batch(plain: SparkSession, tmp_path: Path) -> None:
    old = opened(plain, tmp_path, MASTER)
    old(ranges(0, 500))
    assert old.lost() == {}
    new = opened(plain, tmp_path, MASTER)
    assert new.lost() == {}
    error = old.lost()["rocketmq/broker-a"]
    assert isinstance(error, TakenOver)
    assert (error.log, error.offset) == ("rocketmq/broker-a", 500)
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(ReplicaError, match="is gone"):
        new.lost()


def test_the_session_makes_way_while_the_tasks_read_and_only_then(plain: SparkSession, tmp_path: Path) -> None:
    """Also where they fail: and it was back before anything is committed or acknowledged."""
    seen: list[str] = []

    class Watching(RecordingSession):
        @contextmanager
        def reading(self) -> Iterator[None]:
            seen.append("reading")
            try:
                yield
            finally:
                seen.append("read")

        def acknowledge(self, committed: Offset, mark: int | None = None) -> None:
            seen.append("acknowledge")

    replica = opened(plain, tmp_path, MASTER, Watching(), on_step=lambda step: seen.append(step.value))
    replica(ranges(0, 500))
    assert seen == ["reading", "read", "files", "commit", "acknowledge", "acknowledge", "ledger"]
    seen.clear()
    failing = opened(plain, tmp_path, Failing(SIZES), Watching())
    with pytest.raises(CorruptRecord):
        failing(ranges(500, 1000))
    assert seen == ["reading", "read"]


def test_received_is_what_is_proven_and_never_below_the_position(plain: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[Offset | None, Offset | None]] = []

    def look(step: BatchStep) -> None:
        seen.append((replica.position(), replica.received()))

    replica = opened(plain, tmp_path, MASTER, on_step=look)
    assert replica.received() is None
    replica(ranges(0, 150))
    assert seen == [(None, 400), (400, 400), (400, 400), (400, 400)]
    assert opened(plain, tmp_path, MASTER).received() == 400


def test_a_job_that_starts_while_files_are_written_wins(plain: SparkSession, tmp_path: Path) -> None:
    """The older one has checked, read and written, and is about to commit."""
    newer: list[Solo] = []

    def interfere(step: BatchStep) -> None:
        if step is BatchStep.FILES:
            newer.append(opened(plain, tmp_path, MASTER))
            newer[0](ranges(0, 1000, 300))

    session = RecordingSession()
    old = opened(plain, tmp_path, MASTER, session, on_step=interfere)
    with pytest.raises(TakenOver):
        old(ranges(0, 500))
    assert session.promises == []
    newer[0](ranges(1000, 2000))
    assert offsets(tmp_path) == STARTS
    check_ledger(tmp_path, 2000)


def test_opening_again_goes_on(plain: SparkSession, tmp_path: Path) -> None:
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(0, 500))
    assert replica.open() == 500
    replica(ranges(500, 1000))
    assert offsets(tmp_path) == [start for start in STARTS if start < 1000]


def test_a_replica_that_is_not_open_says_so(plain: SparkSession, tmp_path: Path) -> None:
    replica = Solo(plain, str(tmp_path), MASTER, RecordingSession())
    with pytest.raises(ReplicaError, match="not open"):
        replica.position()


@pytest.mark.spark
def test_an_error_leaves_foreach_batch_with_its_facts(spark: SparkSession, tmp_path: Path) -> None:
    """From the task through the report, the driver and py4j into the query's exception."""
    replica = opened(spark, tmp_path / "warehouse", Failing(SIZES, error=CorruptRecord("bad checksum", offset=10)))
    stream = spark.readStream.format("rate").load()
    writer = stream.writeStream.foreachBatch(lambda batch, number: replica(ranges(0, 500)))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    error = find_error(str(caught.value))
    assert isinstance(error, CorruptRecord)
    assert (error.log, error.offset) == ("rocketmq/broker-a", 10)


def test_the_token_is_in_the_traceback(plain: SparkSession, tmp_path: Path) -> None:
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(0, 500))
    with pytest.raises(Gap) as caught:
        replica(ranges(1000, 1500))
    text = "".join(traceback.format_exception(caught.value))
    found: Any = find_error(text)
    assert found.facts() == caught.value.facts()


def test_each_step_is_timed(plain: SparkSession, tmp_path: Path) -> None:
    steps: list[BatchStep] = []
    replica = opened(plain, tmp_path, MASTER, on_step=steps.append)
    replica(ranges(0, 500))
    assert steps == list(BatchStep)
    assert replica.last is not None
    assert list(replica.last.durations_s) == list(BatchStep)
    assert all(duration >= 0 for duration in replica.last.durations_s.values())
    assert (replica.last.records, replica.last.bytes) == (6, 500)
