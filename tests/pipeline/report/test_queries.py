"""The facts as the tables have them: each query against rows that are known."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.report.drawing.palette import SERIES
from pipeline.report.facts import Facts, Flaw, FlawedRange, Pending, SlowestGroups, TopTopics
from pipeline.report.finding.queries import read_facts
from pipeline.report.page import page
from sinks.tables import EPOCHS, INCIDENTS, KAFKA_LOG, LEDGER, LOG, metadata_table
from sources.errors import ReplicaError
from sources.metadata import KAFKA_PARTITIONS
from sources.offsets import LogId
from tests.pipeline.report.samples import no_session
from tests.sinks.views.conftest import LOG_IDS
from tests.sinks.views.lake import Row, version, write
from tests.sinks.views.made_logs import NOON
from tests.sinks.views.made_topics import ranges_of, record
from tests.truth import Fixture

ORDERS = "kafka/prod/orders"
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


def test_logs(facts: Facts) -> None:
    shop, broker, *many = facts.logs
    assert (broker.log_id, {one.log_id for one in many}) == (BROKER, MANY)
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
            log_id=BROKER,
            flaw=kind,
            start=start,
            end=end,
            stored_after=stored(start),
            stored_before=stored(end),
            why=why,
            all_of_log=1,
            units_of_log=end - start,
        )

    *others, doubtful = (one for one in facts.flaws if one.log_id == BROKER)
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
    assert sum(one.bytes for one in spans if one.log_id == BROKER) == 6900
    assert sum(one.records for one in spans if one.log_id == SHOP) == 7
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
    assert found == [(BROKER, 3, 800, "b:1"), (BROKER, 1, 0, None)]
    assert {one.since for one in facts.elections} == {STORED}


def test_without_metadata_and_messages_there_is_nothing_to_say_of_them(facts: Facts) -> None:
    assert facts.groups == SlowestGroups()
    assert not facts.has_metadata
    assert facts.topics == TopTopics()
    assert facts.transactions == facts.delays == Pending()


def test_many_logs_and_commits_come_as_few_rows(facts: Facts) -> None:
    named = {one.log_id for one in facts.timeline.commits}
    assert named == {None, BROKER, SHOP, *sorted(MANY)[: len(SERIES) - 3]}  # the one with most bytes first
    others = [one for one in facts.timeline.commits if one.log_id is None]
    assert [one.records for one in others] == [540 * (len(MANY) - len(SERIES) + 3)]
    gaps = [one for one in facts.flaws if one.log_id in MANY]
    assert {(one.flaw, one.all_of_log, one.units_of_log) for one in gaps} == {(Flaw.MISSING, 60, 6000)}
    assert len(gaps) == 50 * len(MANY)
    assert {one.end for one in facts.logs if one.log_id in MANY} == {60_000}


@pytest.fixture(scope="module")
def asked_facts(spark: SparkSession, replica: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Of both real logs, and of a Kafka topic of two partitions, whose group is 3 records behind."""
    lake = tmp_path_factory.mktemp("asked") / "lake"
    shutil.copytree(replica, lake)
    now = datetime.now(UTC)
    write(lake, KAFKA_LOG, [*(record(at, value=b"12345") for at in range(3000)), record(0, 1, value=None)])
    write(lake, LEDGER, ranges_of(f"{ORDERS}/0", (0, 3000), records=3000, bytes=30, committed_at=now))
    write(lake, LEDGER, ranges_of(f"{ORDERS}/1", (0, 1), bytes=7, committed_at=now))
    partitions = [
        {"partition": number, "leader": 1, "log_start": 0, "last_stable": end, "log_end": end, "group_offset": told}
        for number, end, told in ((0, 3005, 3002), (1, 1, 1))
    ]
    versions = [version(ORDERS, NOON, one | {"consumer_group": "lakehouse"}) for one in partitions]
    write(lake, metadata_table(KAFKA_PARTITIONS), versions)
    return read_facts(str(lake), [], lambda _: spark.newSession())


@pytest.mark.spark
def test_real_logs(asked_facts: Facts, fixture_497: Fixture, fixture_550: Fixture) -> None:
    found = asked_facts
    assert "All 3 logs and topics are complete." in page(found)
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
    worst = next(one for one in found.groups.groups if one.log_id != ORDERS)
    assert worst.messages_behind == behind(
        {LOG_IDS[one.version]: one for one in (fixture_497, fixture_550)}[LogId.parse(worst.log_id)],
        worst.topic,
        worst.consumer_group,
    )


@pytest.mark.spark
def test_topics_of_kafka_are_topics_and_their_group_is_a_consumer(asked_facts: Facts) -> None:
    (topic,) = (one for one in asked_facts.topics.topics if one.topic == ORDERS)
    assert (topic.messages, topic.bytes) == (3001, 15_000)
    (group,) = (one for one in asked_facts.groups.groups if one.log_id == ORDERS)
    assert (group.consumer_group, group.queues, group.messages_behind) == ("lakehouse", 2, 3)
    assert asked_facts.has_metadata
    (commit,) = (one for one in asked_facts.timeline.commits if one.log_id == ORDERS)
    assert (commit.records, commit.bytes) == (3001, 37)


def is_system(one: dict[str, Any]) -> bool:
    return str(one["topic"]).startswith(("%", "RMQ_SYS", "rmq_sys", "SCHEDULE_TOPIC"))


def behind(fixture: Fixture, topic: str, group: str) -> int:
    """How far a group is behind in a topic, by the files that the broker left."""
    written = (fixture.path / "config" / "consumerOffset.json").read_text()
    quoted = re.sub(r"(\d+):", r'"\1":', written)  # brokers write numbers as keys, which is not JSON
    consumed = {int(queue): offset for queue, offset in json.loads(quoted)["offsetTable"][f"{topic}@{group}"].items()}
    queues = {one["queue_id"]: len(one["entries"]) for one in fixture.consume_queues if one["topic"] == topic}
    return sum(max(0, entries - consumed.get(queue, 0)) for queue, entries in queues.items())


def test_no_replica_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ReplicaError, match="no replica"):
        read_facts(str(tmp_path / "nothing"), [], no_session)
