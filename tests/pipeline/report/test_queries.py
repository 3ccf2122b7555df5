"""The facts as the tables have them: each query against rows that are known."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.report.drawing.plotting import SERIES
from pipeline.report.facts import Facts, Flaw
from pipeline.report.finding.queries import _Questions, read_facts
from pipeline.report.finding.ranges import width_s
from pipeline.report.page import page
from sinks.tables import EPOCHS, INCIDENTS, KAFKA_LOG, LEDGER, LOG
from sinks.views.definition import VIEWS, view
from sources.offsets import LogId
from tests.pipeline.report.samples import no_session
from tests.sinks.views.conftest import LOG_IDS
from tests.sinks.views.lake import Row, write
from tests.sinks.views.test_consumer_lag import committed
from tests.truth import Fixture

BROKER, SHOP = "rocketmq/broker-a", "dister/shop"
STORED = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
"""The record at offset n was stored n / 10 seconds later."""
MANY = {f"rocketmq/many-{number:02}" for number in range(40)}


def stored(offset: int) -> datetime:
    return STORED + timedelta(seconds=offset / 10)


def row(start: int, end: int, waited_s: float = 2.0, **values: Any) -> Row:
    """A range of BROKER whose newest record, at its end, waited so long for its commit."""
    usual = {"log_id": BROKER, "epoch": 0, "start": start, "end": end, "records": (end - start) // 100}
    usual |= {"bytes": end - start, "first_store_timestamp": stored(start), "last_store_timestamp": stored(end)}
    return usual | {"committed_at": stored(end) + timedelta(seconds=waited_s), "origin": "stream"} | values


def lost(start: int, end: int, condition: str, **values: Any) -> Row:
    usual = {"log_id": BROKER, "epoch": 0, "id": f"{start}", "condition": condition, "start": start, "end": end}
    return usual | {"cause": "lost", "action": "skipped", "detected_at": STORED, "state": "open"} | values


def elected(epoch: int, number: int, start: int, master: str | None) -> Row:
    return {"log_id": BROKER, "epoch": epoch, "number": number, "start": start, "master": master, "since": STORED}


def many() -> Iterator[Row]:
    """Of each of MANY 600 ranges of one record, one after the other, and every tenth of them missing."""
    for at in range(600):
        times = dict.fromkeys(
            ("first_store_timestamp", "last_store_timestamp", "committed_at"), STORED + timedelta(seconds=at)
        )
        if at % 10 != 5:
            for log_id in sorted(MANY):
                yield row(at * 100, at * 100 + 100, log_id=log_id, bytes=1) | times


LEDGER_ROWS = [
    row(100, 600, deleted_at=STORED),
    row(600, 1100, deleted_at=STORED),
    row(1100, 2500),
    row(5000, 7000, 4.0),
    row(7500, 9000),
    row(9000, 10_000, 9e6, origin="backfill"),
    row(0, 40, log_id=SHOP, records=7, bytes=900),
]
INCIDENT_ROWS = [
    lost(2500, 5000, "below_minimum"),
    lost(7000, 7500, "gap", state="closed", note="known", ended_at=STORED),
    lost(8000, 8100, "replica_damaged", action="reported"),
]
ELECTIONS = [elected(0, 1, 0, None), elected(0, 2, 900, "a:1"), elected(1, 1, 0, None), elected(1, 3, 800, "b:1")]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Of a broker's log that has every flaw there is, of a whole one of dister, and of MANY; without metadata."""
    lake = tmp_path_factory.mktemp("lake")
    for spec, made in (
        (LOG, ()), (LEDGER, [*LEDGER_ROWS, *many()]), (INCIDENTS, INCIDENT_ROWS), (EPOCHS, ELECTIONS)
    ):  # fmt: skip
        write(lake, spec, made)
    return read_facts(str(lake), [BROKER, "rocketmq/new"], no_session)


def test_every_flaw_says_why_and_lies_between_the_times_around_it(facts: Facts) -> None:
    found = [one for one in facts.flaws if one.log_id == BROKER]
    assert [(one.flaw, one.stored_after, one.stored_before, one.why) for one in found] == [
        (Flaw.DELETED, stored(100), stored(1100), None),
        (Flaw.MISSING, stored(2500), stored(5000), "below_minimum: lost"),
        (Flaw.ACCEPTED, stored(7000), stored(7500), "gap: lost"),
        (Flaw.DOUBTFUL, stored(7500), stored(9000), "replica_damaged: lost"),  # of the range that has it
    ]


def test_incidents_open_ones_first(facts: Facts) -> None:
    assert (facts.incidents.of, facts.incidents.open) == (3, 2)
    assert [one.state for one in facts.incidents.incidents] == ["open", "open", "closed"]
    assert facts.incidents.incidents[2].note == "known"


def test_elections_of_the_newest_history(facts: Facts) -> None:
    found = [(one.log_id, one.number, one.start, one.master) for one in facts.elections]
    assert found == [(BROKER, 3, 800, "b:1"), (BROKER, 1, 0, None)]
    assert {one.since for one in facts.elections} == {STORED}


def test_many_logs_and_commits_come_as_few_rows(facts: Facts) -> None:
    named = {one.log_id for one in facts.timeline.commits}
    assert named == {None, BROKER, SHOP, *sorted(MANY)[: len(SERIES) - 3]}  # the one with most bytes first
    others = [one for one in facts.timeline.commits if one.log_id is None]
    assert [one.records for one in others] == [540 * (len(MANY) - len(SERIES) + 3)]
    gaps = [one for one in facts.flaws if one.log_id in MANY]
    assert {(one.flaw, one.all_of_log, one.units_of_log) for one in gaps} == {(Flaw.MISSING, 60, 6000)}
    assert len(gaps) == 50 * len(MANY)
    assert {one.end for one in facts.logs if one.log_id in MANY} == {60_000}


ROWS_OF_VIEWS = {
    "messages (topic, body)": "('orders', X'0102'), ('orders', NULL), ('rest', X'03')",
    "kafka_log (log_id, value)": "('kafka/prod/clicks/0', X'0102'), ('kafka/prod/clicks/1', NULL)",
    "ledger (log_id, last_store_timestamp)": "('b', TIMESTAMP'2026-11-27 10:30:00')",
    "consumer_lag (log_id, consumer_group, topic, messages_behind, seconds_behind)": (
        "('b', 'g', 'orders', 2, 1), ('b', 'g', 'orders', 1, 9), ('b', 'h', 'orders', 0, 0)"
    ),
    "kafka_lag (log_id, consumer_group, topic, group_offsets_behind)": (
        "('kafka/prod/clicks/0', 'g', 'clicks', 4), ('kafka/prod/clicks/1', 'g', 'clicks', 5),"
        "('kafka/prod/odd/0', 'g', 'odd', 1), ('kafka/prod/odd/1', 'g', 'odd', NULL),"
        "('kafka/prod/clicks/0', NULL, 'clicks', 1)"
    ),
    "transactions (state, log_id, producer_group, topic, prepared_timestamp)": (
        "('committed', 'b', 'p', 'orders', TIMESTAMP'2026-11-27 09:00:00'),"
        "('pending', 'b', NULL, 'orders', TIMESTAMP'2026-11-27 10:00:01'),"
        "('pending', 'b', NULL, 'orders', TIMESTAMP'2026-11-27 10:00:02'),"
        "('pending', 'b', 'p', 'rest', TIMESTAMP'+12026-11-27 10:00:00')"
    ),
    "delayed_messages (state, log_id, kind, level, topic, due_timestamp)": (
        "('delivered', 'b', 'timer', NULL, 'orders', TIMESTAMP'2026-11-27 09:00:00'),"
        "('pending', 'b', 'timer', NULL, 'orders', TIMESTAMP'2026-11-27 11:00:00'),"
        "('pending', 'b', 'level', 3, 'orders', TIMESTAMP'2026-11-27 10:00:01')"
    ),
}
"""What the questions are asked about, as few columns as they name: of the views themselves, by night."""


@pytest.mark.spark
def test_questions_count_what_views_have(spark: SparkSession) -> None:
    session = spark.newSession()
    for head, rows in ROWS_OF_VIEWS.items():
        name, columns = head[:-1].split(" (")
        has = view(name).columns if name in VIEWS else (LEDGER if name == "ledger" else KAFKA_LOG).schema.names
        assert set(columns.split(", ")) <= set(has)
        session.sql(f"SELECT * FROM VALUES {rows} AS t ({columns})").createOrReplaceTempView(name)  # noqa: S608
    found = _Questions(session, {"topics", "groups", "transactions", "delays"}).all(lambda _: None)
    assert astuple(found["topics"]) == ((("kafka/prod/clicks", 2, 2), ("orders", 2, 2), ("rest", 1, 1)), 3, 5, 5)
    groups = (
        ("kafka/prod/clicks", "g", "clicks", 2, 9, None), ("b", "g", "orders", 2, 3, 9.0),
        ("b", "h", "orders", 1, 0, 0.0), ("kafka/prod/odd", "g", "odd", 2, None, None),
    )  # fmt: skip
    assert astuple(found["groups"]) == (groups, 4, 2)
    first, second, last = (datetime(2026, 11, 27, 10, tzinfo=UTC) + timedelta(seconds=late) for late in (1, 2, 3600))
    assert astuple(found["transactions"]) == (
        {"committed": 1, "rolled_back": 0, "pending": 3, "given_up": 0}, width_s(first, second, 60),
        ((first, 1, False), (second, 1, False)),
        (("b", "", "orders", 2, first, second), ("b", "p", "rest", 1, None, None)), 2,
    )  # fmt: skip
    assert astuple(found["delays"]) == (
        {"delivered": 1, "pending": 2, "cancelled": 0}, width_s(first, last, 60),
        ((first.replace(second=0), 1, True), (last, 1, False)),
        (("b", "level 3", "orders", 1, first, first), ("b", "timer", "orders", 1, last, last)), 2,
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(900)  # most of it is Spark's analysis of the views
def test_real_logs(spark: SparkSession, replica: Path, fixture_497: Fixture, fixture_550: Fixture) -> None:
    found = read_facts(str(replica), [], lambda _: spark.newSession())
    assert "All 2 logs are complete." in page(found)
    ends = {one.log_id: (one.complete_to, one.end, one.begin) for one in found.logs}
    for fixture in (fixture_497, fixture_550):
        assert ends[str(LOG_IDS[fixture.version])] == (fixture.max_offset, fixture.max_offset, 0)
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
    assert len(shown.keys() & dispatched.keys()) > 3
    for name in shown.keys() & dispatched.keys():
        assert shown[name] == dispatched[name], name
    assert len(shown) == min(20, found.topics.of)
    worst = found.groups.groups[0]
    assert worst.messages_behind == behind(
        {LOG_IDS[one.version]: one for one in (fixture_497, fixture_550)}[LogId.parse(worst.log_id)],
        worst.topic,
        worst.consumer_group,
    )


def is_system(one: dict[str, Any]) -> bool:
    return str(one["topic"]).startswith(("%", "RMQ_SYS", "rmq_sys", "SCHEDULE_TOPIC"))


def behind(fixture: Fixture, topic: str, group: str) -> int:
    """How far a group is behind in a topic, by the files that the broker left."""
    ends = {one["queue_id"]: len(one["entries"]) for one in fixture.consume_queues if one["topic"] == topic}
    consumed = {queue: at for *of, queue, at in committed(fixture) if of == [group, topic]}
    return sum(max(0, end - consumed.get(queue, 0)) for queue, end in ends.items())
