"""Which version of the table a point of a log is, and what all tables say then."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sinks.healing.hole_filler import HoleFiller
from sinks.healing.repair import Repair
from sinks.tables import INCIDENTS, KEY_VALUES, LEDGER, LOG, TableSpec, metadata_table
from sinks.values.continuity import Link
from sinks.values.incident import Action, Incident
from sinks.views import as_of
from sinks.views.as_of import AsOf, PastLog, as_it_was, first_version, register_as_of
from sinks.views.registration import register_views
from sources.errors import ReplicaError
from sources.loss import Condition
from sources.metadata import CONSUMER_OFFSETS
from sources.offsets import LogId, Offset, OffsetRange, Position
from tests.sinks.batches import ledger, opened, ranges
from tests.sinks.memory_master import BROKER_A, FIRST_STORED, MemoryMaster, Rewriting, raw_bytes
from tests.sinks.views.lake import version, write
from tests.sinks.views.made_logs import NOON

SIZES = (100,) * 40  # record n starts at 100 n; every eleventh is a blank
MASTER = MemoryMaster(SIZES)
STARTS = [row["offset"] for row in MASTER.records()]
UNKNOWN = LogId("rocketmq", "broker-z")


def stored(record: int) -> datetime:
    return FIRST_STORED + timedelta(milliseconds=250 * record)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_version_is_found_among_those_that_are_left(seed: int) -> None:
    """Positions that grow, go back with a new epoch, and stay where another log commits; against a look at each."""
    source = random.Random(seed)
    positions: list[Position | None] = [None] * source.randrange(1, 4)
    epoch, offset = 0, 0
    for _ in range(source.randrange(1, 60)):
        if source.random() < 0.1:
            epoch, offset = epoch + 1, source.randrange(offset + 1)
        elif source.random() < 0.7:
            offset += source.randrange(1, 100)
        positions.append(Position(BROKER_A, epoch, Offset(offset)))
    versions = range(source.randrange(len(positions)), len(positions))
    wanted = Position(BROKER_A, epoch, Offset(source.randrange(offset + 1)))
    having = (
        version
        for version in versions
        if (found := positions[version]) is not None and found.epoch == epoch and found.offset >= wanted.offset
    )
    asked: list[int] = []

    def position_at(version: int) -> Position | None:
        asked.append(version)
        return positions[version]

    assert first_version(versions, wanted, position_at) == next(having)
    assert set(asked) <= set(versions)
    assert len(asked) <= len(versions).bit_length()


@dataclass(frozen=True)
class Lake:
    """[0, 1000), [1000, 2000), … in a commit each; the group was at 1, 2, … right after it. `versions` are of these."""

    path: Path
    versions: tuple[int, ...]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("as-of")
    replica, versions, seen = opened(spark, folder, MASTER), [], []
    for number in range(4):
        replica(ranges(1000 * number, 1000 * number + 1000, 500))
        seen.append(datetime.now(UTC))
        versions.append(DeltaTable(LOG.path(str(folder))).version())
    for number, (since, until) in enumerate(zip(seen, [*seen[1:], None], strict=True), 1):
        item = {"topic": "orders", "consumer_group": "cg", "queue_id": 0, "next_queue_offset": number}
        write(folder, metadata_table(CONSUMER_OFFSETS), [version(str(BROKER_A), since, item, until)])
    return Lake(folder, tuple(versions))


def offsets_of(session: SparkSession) -> list[int]:
    return [row["offset"] for row in session.sql("SELECT offset FROM log ORDER BY offset").collect()]


@pytest.mark.spark
def test_a_point_between_two_commits(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_of, "register_views", partial(register_views, views=["records"]))  # all take seconds
    session = spark.newSession()
    shown = register_as_of(session, str(lake.path), BROKER_A, Offset(2250))
    assert (shown.log_id, shown.offset, shown.version, shown.is_first) == (BROKER_A, 2250, lake.versions[2], True)
    assert shown.reached_at == next(row["committed_at"] for row in ledger(lake.path) if row["end"] == 2500)
    assert timedelta(0) <= shown.committed_at - shown.reached_at + timedelta(milliseconds=1) < timedelta(minutes=1)
    assert offsets_of(session) == STARTS[:22]  # the one at 2200 ends at 2300
    found = session.sql("SELECT start, `end` FROM ledger ORDER BY start").collect()
    assert found == [(0, 500), (500, 1000), (1000, 1500), (1500, 2000), (2000, 2500)]
    consumed = session.sql("SELECT next_queue_offset, is_current, valid_to FROM consumer_offsets").collect()
    assert consumed == [(2, True, None)]  # as of the third commit; the group came to 3 after it
    assert session.sql("SELECT count(*) FROM records").collect() == [(20,)]  # of 22, two blanks
    assert session.table("ledger").schema == spark.read.format("delta").load(f"{lake.path}/ledger").schema


@pytest.mark.spark
def test_a_time_is_everything_that_was_stored_by_then(spark: SparkSession, lake: Lake) -> None:
    log = PastLog(spark, str(lake.path), BROKER_A)
    assert log.offset_at(stored(12)) == 1300
    assert log.offset_at(stored(12) + timedelta(milliseconds=249)) == 1300
    assert log.offset_at(stored(12) - timedelta(microseconds=1)) == 1200
    assert log.offset_at(stored(9)) == 1100  # behind it is a blank, which has no time
    assert log.offset_at(stored(-1)) == 0


@pytest.mark.spark
def test_points_that_the_replica_has_not_reached_are_refused(spark: SparkSession, lake: Lake) -> None:
    log = PastLog(spark, str(lake.path), BROKER_A)
    with pytest.raises(
        ReplicaError, match=r"complete through .*after 2024-02-29 23:59:39.750.*found the newest one, of"
    ):
        log.offset_at(stored(39))
    with pytest.raises(
        ReplicaError, match=r"broker-a at offset 4001: the replica has not come that far.*position 4000"
    ):
        log.as_of(Offset(4001))
    with pytest.raises(ReplicaError, match=r"nothing of this log; expected rocketmq/broker-a, found none"):
        PastLog(spark, str(lake.path), UNKNOWN)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_hole_that_was_filled_since_is_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    hole = OffsetRange(Offset(1000), Offset(1500))
    replica = opened(spark, tmp_path, MASTER)
    replica(ranges(0, 1000))
    lost = Incident(
        condition=Condition.GAP, start=hole.start, end=hole.end, cause="", action=Action.SKIPPED, detected_at=1
    )
    replica.skip(lost)
    replica(ranges(1500, 2000))
    with pytest.raises(ReplicaError, match=r"the record before 1500, where .* lies, found \[1000, 1500\) is missing"):
        PastLog(spark, str(tmp_path), BROKER_A).offset_at(stored(12))
    filler = HoleFiller(spark, str(tmp_path), BROKER_A)
    link = Link.of(OffsetRange(Offset(900), Offset(1000)), raw_bytes({"offset": 900, "size": 100}))
    filler.fill(filler.look(), hole, MASTER, link)
    session = spark.newSession()
    shown = register_as_of(session, str(tmp_path), BROKER_A, stored(19) - timedelta(microseconds=1))
    assert shown.offset == 1900
    assert offsets_of(session) == STARTS[:10] + STARTS[15:19]
    (complete,) = session.sql("SELECT complete_to, `end`, missing, open_incidents FROM completeness").collect()
    assert complete == (1000, 2000, [(1000, 1500)], 1)  # the range that begins below goes on to 2000
    assert PastLog(spark, str(tmp_path), BROKER_A).offset_at(stored(12)) == 1300


@pytest.mark.spark
@pytest.mark.nightly
def test_a_version_whose_files_are_vacuumed_does_not_serve(spark: SparkSession, tmp_path: Path) -> None:
    replica = opened(spark, tmp_path, MASTER)
    for number in range(2):
        replica(ranges(1000 * number, 1000 * number + 1000))
    before = DeltaTable(LOG.path(str(tmp_path)))
    spark.sql(f"OPTIMIZE delta.`{before.table_uri}`")
    assert PastLog(spark, str(tmp_path), BROKER_A).as_of(Offset(1500)).version == before.version()
    for file in before.file_uris():
        Path(file).unlink()
    shown = PastLog(spark, str(tmp_path), BROKER_A).as_of(Offset(1500))
    assert (shown.version, shown.is_first) == (before.version() + 1, False)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_point_is_one_of_the_present_history(spark: SparkSession, tmp_path: Path) -> None:
    replica = opened(spark, tmp_path, MASTER)
    for number in range(2):
        replica(ranges(1000 * number, 1000 * number + 1000))
    before = DeltaTable(LOG.path(str(tmp_path))).version()
    rewritten = Rewriting(SIZES, since=1200)
    Repair(spark, str(tmp_path), rewritten).run()
    log = PastLog(spark, str(tmp_path), BROKER_A)
    assert log.as_of(Offset(1200)).version > before
    with pytest.raises(ReplicaError, match="has not come that far; expected an offset up to its position 1200"):
        log.as_of(Offset(1201))
    opened(spark, tmp_path, rewritten)(ranges(1200, 2000))
    again = PastLog(spark, str(tmp_path), BROKER_A)
    assert again.as_of(Offset(1200)).version == log.as_of(Offset(1200)).version < again.as_of(Offset(1201)).version


BEFORE, LATER = NOON - timedelta(hours=1), NOON + timedelta(hours=1)
SHOWN = AsOf(log_id=BROKER_A, offset=Offset(1000), version=5, committed_at=NOON, reached_at=NOON, is_first=True)


def made(spark: SparkSession, spec: TableSpec, *rows: dict[str, object]) -> DataFrame:
    values = [{"log_id": str(BROKER_A), **row} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(values, schema=spec.schema.remove_metadata()))


@pytest.mark.spark
def test_what_ended_later_is_open_and_what_was_deleted_later_is_there(spark: SparkSession) -> None:
    incidents = made(
        spark,
        INCIDENTS,
        {"id": "past", "detected_at": BEFORE, "state": "closed", "ended_at": BEFORE, "note": "known"},
        {"id": "open", "detected_at": NOON, "state": "healed", "ended_at": LATER, "note": "filled"},
        {"id": "later", "detected_at": LATER, "state": "open"},
    )
    found = as_it_was(INCIDENTS, incidents, SHOWN).select("id", "state", "note", sql.col("ended_at").isNull()).collect()
    assert sorted(found) == [("open", "open", None, True), ("past", "closed", "known", False)]
    rows = made(
        spark,
        LEDGER,
        {"start": 0, "origin": "stream", "committed_at": BEFORE, "deleted_at": BEFORE},
        {"start": 100, "origin": "stream", "committed_at": LATER, "deleted_at": LATER},  # the clock of another machine
        {"start": 200, "origin": "backfill", "committed_at": NOON},
        {"start": 300, "origin": "backfill", "committed_at": LATER},
        {"start": 1000, "origin": "stream", "committed_at": BEFORE},
        {"log_id": str(UNKNOWN), "start": 0, "origin": "stream", "committed_at": BEFORE},
    )
    ranges_then = as_it_was(LEDGER, rows, SHOWN).select("start", sql.col("deleted_at").isNull()).collect()
    assert sorted(ranges_then) == [(0, False), (100, True), (200, True)]


@pytest.mark.spark
def test_a_map_without_a_past_says_so_to_whom_it_concerns(spark: SparkSession) -> None:
    entries = made(spark, KEY_VALUES, {"log_id": "dister/main", "key": "k", "value": "v", "id": 7})
    assert as_it_was(KEY_VALUES, entries, SHOWN).collect() == []
    shown = replace(SHOWN, log_id=LogId("dister", "main"))
    with pytest.raises(PySparkException, match="dister_kv has no past: what dister/main said of a key at 1000 is in"):
        as_it_was(KEY_VALUES, entries, shown).collect()
