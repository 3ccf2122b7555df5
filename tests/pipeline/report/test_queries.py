"""The facts as the tables have them: each query against rows that are known."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.report.drawing.palette import SERIES
from pipeline.report.facts import Facts, Flaw, FlawedRange, Pending, SlowestGroups, TopTopics
from pipeline.report.finding.queries import read_facts
from pipeline.report.page import page
from sinks.books.epochs import EpochsTable
from sinks.books.incident import Action, Incident, State
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger
from sinks.books.ledger_row import BACKFILL, LedgerRow
from sinks.history.metadata import MetadataTable
from sinks.spark_schemas import spark_schema
from sinks.tables import EPOCHS, LEDGER
from sinks.warehouse import ensure_tables
from sources.epochs import Epoch
from sources.errors import ReplicaError
from sources.loss import Condition
from sources.metadata import KAFKA_PARTITIONS
from sources.offsets import LogId, Offset, Position
from tests.sinks.views.conftest import LOG_IDS
from tests.sinks.views.made_topics import NOON, ORDERS, ranges_of, record, session_with
from tests.truth import Fixture

pytestmark = pytest.mark.spark

BROKER = LogId("rocketmq", "broker-a")
SHOP = LogId("dister", "shop")
STORED = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
"""The record at offset n was stored n / 10 seconds later."""
MANY = {f"rocketmq/many-{number:02}" for number in range(40)}


def stored(offset: int) -> datetime:
    return STORED + timedelta(seconds=offset / 10)


def row(start: int, end: int, waited_s: float = 2.0, **values: Any) -> LedgerRow:
    """A range whose newest record, at its end, waited so long for its commit."""
    return LedgerRow(
        start=Offset(start),
        end=Offset(end),
        records=(end - start) // 100,
        bytes=end - start,
        checksum="sha256:00",
        first_store_timestamp=micros(stored(start)),
        last_store_timestamp=micros(stored(end)),
        committed_at=micros(stored(end) + timedelta(seconds=waited_s)),
        **values,
    )


def micros(at: datetime) -> int:
    return round(at.timestamp()) * 1_000_000


def lost(start: int, end: int, condition: Condition, action: Action = Action.SKIPPED) -> Incident:
    return Incident(
        condition=condition,
        start=Offset(start),
        end=Offset(end),
        cause="lost",
        action=action,
        detected_at=micros(STORED),
    )


def add_many(spark: SparkSession, warehouse: str) -> None:
    """Of each of MANY 600 ranges of one record, one after the other, and every tenth of them missing."""
    number, at = sql.col("id") % len(MANY), sql.floor(sql.col("id") / len(MANY))
    time = sql.timestamp_seconds(at + int(STORED.timestamp()))
    columns = {
        "log_id": sql.format_string("rocketmq/many-%02d", number),
        "epoch": sql.lit(0),
        "start": at * 100,
        "end": at * 100 + 100,
        "records": sql.lit(1),
        "bytes": sql.lit(1),
        "checksum": sql.lit("sha256:00"),
        "first_store_timestamp": time,
        "last_store_timestamp": time,
        "committed_at": time,
        "origin": sql.lit("stream"),
        "deleted_at": sql.lit(None),
    }
    schema = spark_schema(LEDGER.schema)
    rows = spark.range(600 * len(MANY)).where(at % 10 != 5)
    rows = rows.select(*(columns[field.name].cast(field.dataType).alias(field.name) for field in schema))
    rows.coalesce(1).write.format("delta").mode("append").save(LEDGER.path(warehouse))


@pytest.fixture(scope="module")
def facts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Of a broker's log that has every flaw there is, of a whole one of dister, and of MANY; without metadata."""
    warehouse = str(tmp_path_factory.mktemp("lake"))
    ensure_tables(spark, warehouse)
    ledger = Ledger(spark, LEDGER.path(warehouse))
    deleted = [replace(row(at, at + 500), deleted_at=micros(STORED)) for at in (100, 600)]
    live = [row(1100, 2500), row(5000, 7000, 4.0), row(7500, 9000), replace(row(9000, 10_000, 9e6), origin=BACKFILL)]
    ledger.append(Position(BROKER, 0, Offset(10_000)), [*deleted, *live])
    ledger.append(Position(SHOP, 0, Offset(40)), [replace(row(0, 40), records=7, bytes=900)])
    incidents = IncidentsTable(spark, warehouse, BROKER)
    accepted = lost(7000, 7500, Condition.GAP)
    incidents.record(
        0,
        [
            lost(2500, 5000, Condition.BELOW_MINIMUM),
            accepted,
            lost(8000, 8100, Condition.REPLICA_DAMAGED, Action.REPORTED),
        ],
    )
    incidents.end([accepted.id_in(BROKER, 0)], State.CLOSED, "known", micros(STORED))
    elections = EpochsTable(spark, EPOCHS.path(warehouse))
    elections.append(
        BROKER, 0, (Epoch(1, Offset(0), None, micros(STORED)), Epoch(2, Offset(900), "a:1", micros(STORED)))
    )
    elections.append(
        BROKER, 1, (Epoch(1, Offset(0), None, micros(STORED)), Epoch(3, Offset(800), "b:1", micros(STORED)))
    )
    add_many(spark, warehouse)
    return read_facts(warehouse, [str(BROKER), "rocketmq/new"], lambda _: spark.newSession())


def test_logs(facts: Facts) -> None:
    shop, broker, *many = facts.logs
    assert (broker.log_id, {one.log_id for one in many}) == (str(BROKER), MANY)
    assert (broker.begin, broker.complete_to, broker.end) == (100, 2500, 10_000)
    assert broker.complete_through == stored(2500)
    assert (broker.bytes, broker.records, broker.open_incidents) == (5900, 59, 2)
    assert (broker.oldest_stored, broker.newest_stored) == (stored(100), stored(10_000))
    # the oldest records of the live job's ranges waited 52, 52, 142, 204 and 152 s, the newest record of the last 2 s
    assert (broker.waited_p50_s, broker.waited_p99_s, broker.newest_waited_s) == (142.0, 204.0, 2.0)
    assert (shop.log_id, shop.records, shop.bytes, shop.complete_to) == ("dister/shop", 7, 900, 40)
    assert facts.unseen == ("rocketmq/new",)
    assert facts.version == 0


def test_every_flaw_where_it_is_and_between_which_times(facts: Facts) -> None:
    def flaw(kind: Flaw, start: int, end: int, why: str | None) -> FlawedRange:
        return FlawedRange(
            log_id=str(BROKER),
            flaw=kind,
            start=start,
            end=end,
            stored_after=stored(start),
            stored_before=stored(end),
            why=why,
            all_of_log=1,
            units_of_log=end - start,
        )

    *others, doubtful = (one for one in facts.flaws if one.log_id == str(BROKER))
    assert others == [
        flaw(Flaw.DELETED, 100, 1100, None),
        flaw(Flaw.MISSING, 2500, 5000, "below_minimum: lost"),
        flaw(Flaw.ACCEPTED, 7000, 7500, "gap: lost"),
    ]
    within = replace(doubtful, stored_after=stored(8000), stored_before=stored(8100))
    assert within == flaw(Flaw.DOUBTFUL, 8000, 8100, "replica_damaged: lost")
    assert (doubtful.stored_after, doubtful.stored_before) == (stored(7500), stored(9000))  # of the range that has it


def test_commits_by_time_deleted_and_backfilled_ones_too(facts: Facts) -> None:
    spans = facts.timeline.commits
    assert facts.timeline.width_s == 86_400  # the backfill came a quarter of a year later
    assert sum(one.bytes for one in spans if one.log_id == str(BROKER)) == 6900
    assert sum(one.records for one in spans if one.log_id == str(SHOP)) == 7
    assert {one.at for one in spans} == {
        datetime(2026, 11, 22, tzinfo=UTC),
        (stored(10_000) + timedelta(seconds=9e6)).replace(hour=0, minute=0, second=0, microsecond=0),
    }
    assert [one.waited_p50_s for one in spans if one.at.day != 22] == [None]


def test_incidents_open_ones_first(facts: Facts) -> None:
    assert (facts.incidents.of, facts.incidents.open) == (3, 2)
    assert [one.state for one in facts.incidents.incidents] == ["open", "open", "closed"]
    assert facts.incidents.incidents[2].note == "known"


def test_elections_of_the_newest_history(facts: Facts) -> None:
    found = [(one.log_id, one.number, one.start, one.master) for one in facts.elections]
    assert found == [(str(BROKER), 3, 800, "b:1"), (str(BROKER), 1, 0, None)]
    assert {one.since for one in facts.elections} == {STORED}


def test_without_metadata_and_messages_there_is_nothing_to_say_of_them(facts: Facts) -> None:
    assert facts.groups == SlowestGroups()
    assert not facts.has_metadata
    assert facts.topics == TopTopics()
    assert facts.transactions == facts.delays == Pending()


def test_many_logs_and_commits_come_as_few_rows(facts: Facts) -> None:
    named = {one.log_id for one in facts.timeline.commits}
    assert named == {None, str(BROKER), str(SHOP), *sorted(MANY)[: len(SERIES) - 3]}  # the one with most bytes first
    others = [one for one in facts.timeline.commits if one.log_id is None]
    assert [one.records for one in others] == [540 * (len(MANY) - len(SERIES) + 3)]
    gaps = [one for one in facts.flaws if one.log_id in MANY]
    assert {(one.flaw, one.all_of_log, one.units_of_log) for one in gaps} == {(Flaw.MISSING, 60, 6000)}
    assert len(gaps) == 50 * len(MANY)
    assert {one.end for one in facts.logs if one.log_id in MANY} == {60_000}


def test_real_logs(spark: SparkSession, replica: Path, fixture_497: Fixture, fixture_550: Fixture) -> None:
    found = read_facts(str(replica), [], lambda _: spark.newSession())
    assert "All 2 logs are complete." in page(found)
    assert {one.log_id: (one.complete_to, one.end, one.begin) for one in found.logs} == {
        str(LOG_IDS[fixture.version]): (fixture.max_offset, fixture.max_offset, 0)
        for fixture in (fixture_497, fixture_550)
    }
    assert found.flaws == ()
    committed = sum(one.get("sys_flag", 0) & 12 == 8 for one in (*fixture_497.rows, *fixture_550.rows))
    assert found.transactions.states["committed"] == committed
    waiting = found.transactions.states["pending"]
    assert sum(one.count for one in found.transactions.slices) == waiting
    assert sum(one.count for one in found.transactions.waiting) == waiting
    assert sum(one.count for one in found.delays.slices) == found.delays.states["pending"] > 0
    shown = {one.topic: one.messages for one in found.topics.topics}
    dispatched = Counter(
        one["topic"]
        for one in (*fixture_497.rows, *fixture_550.rows)
        if one.get("in_consume_queue") and not is_system(one)
    )
    for name, messages in shown.items():
        if name in dispatched:
            assert messages == dispatched[name], name
    assert len(shown) == min(20, found.topics.of)
    (worst, *_) = found.groups.groups
    assert worst.messages_behind == behind(
        {LOG_IDS[one.version]: one for one in (fixture_497, fixture_550)}[LogId.parse(worst.log_id)],
        worst.topic,
        worst.consumer_group,
    )


def test_topics_of_kafka_are_topics_and_their_group_is_a_consumer(spark: SparkSession, tmp_path: Path) -> None:
    """By the topic: two partitions of 3 and 1 records; the group has committed 2 and 1 of ends 5 and 1."""
    records = [record(at, value=b"12345") for at in range(3)] + [record(0, 1, value=None)]
    ledger = [*ranges_of(0, (0, 3), records=3, bytes=30), *ranges_of(1, (0, 1), bytes=7)]
    session_with(spark, tmp_path, records, ledger=ledger)
    partitions = [
        {"partition": number, "leader": 1, "log_start": 0, "last_stable": end, "log_end": end, "group_offset": told}
        | {"consumer_group": "lakehouse"}
        for number, end, told in ((0, 5, 2), (1, 1, 1))
    ]
    fetched = pa.Table.from_pylist(partitions, schema=KAFKA_PARTITIONS.schema)
    MetadataTable(spark, str(tmp_path), LogId.parse(ORDERS), KAFKA_PARTITIONS).record(fetched, NOON)
    found = read_facts(str(tmp_path), [], lambda _: spark.newSession())
    assert [(one.topic, one.messages, one.bytes) for one in found.topics.topics] == [(ORDERS, 4, 15)]
    assert (found.topics.of, found.topics.messages, found.topics.bytes) == (1, 4, 15)
    assert [(one.log_id, one.consumer_group, one.queues, one.messages_behind) for one in found.groups.groups] == [
        (ORDERS, "lakehouse", 2, 3)
    ]
    assert found.has_metadata
    assert [(one.log_id, one.records, one.bytes) for one in found.timeline.commits] == [(ORDERS, 4, 37)]


def is_system(one: dict[str, Any]) -> bool:
    return str(one["topic"]).startswith(("%", "RMQ_SYS", "rmq_sys", "SCHEDULE_TOPIC"))


def behind(fixture: Fixture, topic: str, group: str) -> int:
    """How far a group is behind in a topic, by the files that the broker left."""
    written = (fixture.path / "config" / "consumerOffset.json").read_text()
    quoted = re.sub(r"(\d+):", r'"\1":', written)  # brokers write numbers as keys, which is not JSON
    consumed = {int(queue): offset for queue, offset in json.loads(quoted)["offsetTable"][f"{topic}@{group}"].items()}
    queues = {one["queue_id"]: len(one["entries"]) for one in fixture.consume_queues if one["topic"] == topic}
    return sum(max(0, entries - consumed.get(queue, 0)) for queue, entries in queues.items())


def test_no_replica_is_said_to_be_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ReplicaError, match="no replica"):
        read_facts(str(tmp_path / "nothing"), [], lambda _: spark.newSession())
