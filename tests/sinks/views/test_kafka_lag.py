"""How far behind each partition is, of what the tables say of the replica and of the master; and its completeness."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sinks.history.metadata import MetadataTable
from sources.metadata import KAFKA_PARTITIONS
from sources.offsets import LogId
from tests.sinks.views.made_topics import NOON, ORDERS, loss, ranges_of, session_with

pytestmark = pytest.mark.spark

MINUTE = timedelta(minutes=1)


def seen(partition: int, start: int | None = None, stable: int | None = None, end: int | None = None) -> dict[str, Any]:
    """A partition at the master; without bounds nobody leads it."""
    leader = None if end is None else 1
    return {"partition": partition, "leader": leader, "log_start": start, "last_stable": stable, "log_end": end}


def with_group(row: dict[str, Any], offset: int | None) -> dict[str, Any]:
    return row | {"consumer_group": "lakehouse", "group_offset": offset}


def fetched(spark: SparkSession, warehouse: Path, minute: int, *rows: dict[str, Any], of: str = ORDERS) -> None:
    """What the master had at a minute after noon, recorded as a job does."""
    table = MetadataTable(spark, str(warehouse), LogId.parse(of), KAFKA_PARTITIONS)
    table.record(pa.Table.from_pylist(list(rows), schema=KAFKA_PARTITIONS.schema), NOON + minute * MINUTE)


def lag(session: SparkSession, *columns: str) -> dict[Any, tuple[Any, ...]]:
    """By log id, `columns`."""
    found = session.table("kafka_lag").select("log_id", *columns).collect()
    assert len({row.log_id for row in found}) == len(found)
    return {row.log_id.removeprefix(f"{ORDERS}/"): tuple(row)[1:] for row in found}


def test_each_partition_is_as_far_behind_as_the_master_was_seen_ahead(spark: SparkSession, tmp_path: Path) -> None:
    fetched(spark, tmp_path, 0, with_group(seen(0, 0, 120, 120), 100), with_group(seen(1, 5, 90, 90), None))
    fetched(spark, tmp_path, 1, with_group(seen(0, 0, 170, 180), 130), with_group(seen(1, 5, 90, 90), None))
    fetched(spark, tmp_path, 2, seen(0, 20, 50, 50), of="kafka/prod/plain")
    assert {folder.name for folder in tmp_path.iterdir() if folder.is_dir()} == {"kafka_partitions"}
    ledger = [
        *ranges_of(0, (0, 100), last_store_timestamp=NOON + MINUTE, committed_at=NOON),
        *ranges_of(0, (100, 150), last_store_timestamp=NOON, committed_at=NOON + MINUTE),
        *ranges_of(1, (5, 90)),
        {**ranges_of(0, (0, 9999))[0], "log_id": "rocketmq/broker-a"},
    ]
    session = session_with(spark, tmp_path, ledger=ledger)
    assert lag(session, "topic", "partition") == {
        "0": ("orders", 0),
        "1": ("orders", 1),
        "kafka/prod/plain/0": ("plain", 0),
    }
    assert lag(session, "position", "log_start", "last_stable", "log_end", "leader") == {
        "0": (150, 0, 170, 180, 1),
        "1": (90, 5, 90, 90, 1),
        "kafka/prod/plain/0": (None, 20, 50, 50, 1),
    }
    assert lag(session, "offsets_behind", "offsets_waiting") == {
        "0": (30, 10),
        "1": (0, 0),
        "kafka/prod/plain/0": (30, 0),  # nothing of it is there
    }
    assert lag(session, "consumer_group", "group_offset", "group_offsets_behind") == {
        "0": ("lakehouse", 130, 50),
        "1": ("lakehouse", None, 85),
        "kafka/prod/plain/0": (None, None, None),
    }
    micros = [f"unix_micros({name})" for name in ("committed_at", "newest_timestamp", "seen_from")]
    times = session.table("kafka_lag").where("partition = 0 AND topic = 'orders'").selectExpr(*micros).collect()
    a_minute_past = int((NOON + MINUTE).timestamp()) * 1_000_000
    assert [tuple(row) for row in times] == [(a_minute_past,) * 3]


def test_what_is_not_known_is_null(spark: SparkSession, tmp_path: Path) -> None:
    gone = seen(3, 0, 7, 7)
    fetched(spark, tmp_path, 0, gone)
    fetched(spark, tmp_path, 1, seen(4), with_group(seen(5, 0, 50, 50), 60), seen(6, 0, 170, 180), seen(7, 0, 0, 0))
    ledger = [*ranges_of(3, (0, 10)), *ranges_of(4, (0, 10)), *ranges_of(5, (0, 60)), *ranges_of(6, (0, 175))]
    session = session_with(spark, tmp_path, ledger=ledger)
    columns = ("position", "log_end", "offsets_behind", "offsets_waiting", "group_offsets_behind")
    assert lag(session, *columns) == {
        "3": (10, None, None, None, None),  # no metadata of it
        "4": (10, None, None, None, None),  # nobody leads it
        "5": (60, None, None, None, None),  # the end that was seen is older
        "6": (175, 180, 5, 5, None),  # read past the last stable offset
        "7": (None, 0, 0, 0, None),  # empty
    }


def test_what_was_seen_before_the_position_was_reached_is_null(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of two moments is subtracted; and an idle partition, whose end no fetch finds changed, is known."""
    fetched(
        spark, tmp_path, 0,
        with_group(seen(0, 0, 100, 100), 60),  # the replica has come further since
        with_group(seen(1, 0, 100, 100), 60),  # the replica has come to that end since, and so may the group have
        with_group(seen(2, 0, 100, 100), 60),  # committed before it was looked at: the group stands still
        with_group(seen(3, 0, 100, 100), 100),
        with_group(seen(4, 0, 100, 100), 100),
        with_group(seen(5, 0, 100, 100), None),
    )  # fmt: skip
    ends = {0: 150, 1: 100, 2: 100, 3: 100, 4: 150, 5: 100}
    ledger = [
        one
        for number, end in ends.items()
        for one in ranges_of(number, (0, end), committed_at=NOON + (0 if number == 2 else 1) * MINUTE)
    ]
    columns = ("last_stable", "log_end", "offsets_behind", "offsets_waiting", "group_offset", "group_offsets_behind")
    assert lag(session_with(spark, tmp_path, ledger=ledger), *columns) == {
        "0": (None, None, None, None, None, None),
        "1": (100, 100, 0, 0, None, None),
        "2": (100, 100, 0, 0, 60, 40),
        "3": (100, 100, 0, 0, 100, 0),
        "4": (None, None, None, None, None, None),
        "5": (100, 100, 0, 0, None, None),
    }


def test_the_position_is_that_of_the_newest_history_and_behind_what_was_passed(
    spark: SparkSession, tmp_path: Path
) -> None:
    fetched(spark, tmp_path, 0, seen(0, 0, 45, 45), seen(1, 30, 40, 40))
    ledger = [*ranges_of(0, (0, 100)), *ranges_of(0, (0, 40), epoch=1), *ranges_of(1, (0, 10))]
    incidents = [loss(1, 10, 30, "skipped"), loss(1, 30, 39, "reported")]
    session = session_with(spark, tmp_path, ledger=ledger, incidents=incidents)
    assert lag(session, "position", "offsets_behind") == {"0": (40, 5), "1": (30, 10)}


def test_without_a_topic_there_is_nothing(spark: SparkSession, tmp_path: Path) -> None:
    session = session_with(spark, tmp_path)
    assert [session.table(name).count() for name in ("kafka_lag", "kafka_records", "completeness")] == [0, 0, 0]


def test_each_partition_is_complete_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """By offsets, of which some have no record; a partition's number may begin another's."""
    ledger = [
        *ranges_of(1, (0, 60), (60, 100), records=20, bytes=1000, last_store_timestamp=NOON),
        *ranges_of(1, (150, 200), records=50, bytes=500, last_store_timestamp=NOON + MINUTE),
        *ranges_of(10, (700, 800), records=0, bytes=0),
    ]
    session = session_with(spark, tmp_path, ledger=ledger, incidents=[loss(1, 100, 150, "skipped")])
    columns = ("log_id", "complete_from", "complete_to", "end", "records", "bytes", "gaps", "gap_units", "missing")
    found = session.table("completeness").select(*columns, "open_incidents").orderBy("log_id").collect()
    assert [tuple(row) for row in found] == [
        (f"{ORDERS}/1", 0, 100, 200, 90, 2500, 1, 50, [(100, 150)], 1),
        (f"{ORDERS}/10", 700, 800, 800, 0, 0, 0, 0, [], 0),
    ]
    through = session.sql("SELECT unix_seconds(complete_through_timestamp) FROM completeness ORDER BY log_id").collect()
    assert [row[0] for row in through] == [int(NOON.timestamp()), None]
