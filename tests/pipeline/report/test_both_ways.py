"""What a report reads without Spark is what SQL says of the same tables; and what it does not ask has no answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pipeline.report.facts import Pending, SlowestGroups, TopTopics
from pipeline.report.finding import asked
from pipeline.report.finding.asked import DELAY_TOPICS, TRANSACTION_TOPICS, worth_asking
from pipeline.report.finding.queries import _Questions, read_facts
from sinks.delta.delta_log import newest
from sinks.tables import EPOCHS, INCIDENTS, KAFKA_LOG, LEDGER, LOG, TableSpec, metadata_table
from sinks.views.definition import view
from sources.metadata import CONSUMER_OFFSETS, KAFKA_PARTITIONS
from tests.pipeline.report.in_sql import facts_in_sql
from tests.pipeline.report.samples import no_session
from tests.sinks.views.made_logs import message

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
ALL = frozenset({"topics", "groups", "transactions", "delays"})
NOTHING = {"topics": TopTopics(), "groups": SlowestGroups(), "transactions": Pending(), "delays": Pending()}


def write(lake: Path, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
    """As commits do, in files of some rows each."""
    given = {field.name: None for field in spec.schema}
    table = pa.Table.from_pylist([given | row for row in rows], spec.schema)
    half = table.num_rows // 2
    for part in (table.slice(0, half), table.slice(half)):
        write_deltalake(spec.path(str(lake)), part, mode="append")


def at(chance: random.Random, *, days: int = 3) -> datetime:
    return NOW - timedelta(microseconds=chance.randrange(days * 86_400 * 1_000_000))


def ranges(chance: random.Random, log_id: str) -> Iterator[dict[str, Any]]:
    """In any order, next to each other or apart or over each other, some deleted, some without a message."""
    for start in chance.sample(range(0, 4000, 50), chance.randrange(1, 12)):
        size, has_times = chance.choice((50, 50, 50, 100, 120, 700)), chance.random() < 0.8
        first, last = sorted((at(chance), at(chance)))
        yield {
            "log_id": log_id,
            "epoch": chance.randrange(2),
            "start": start,
            "end": start + size,
            "records": chance.randrange(9),
            "bytes": size,
            "checksum": "sha256:00",
            "first_store_timestamp": first if has_times else None,
            "last_store_timestamp": last if has_times else None,
            "committed_at": at(chance),
            "origin": chance.choice(("stream", "stream", "stream", "backfill", "repair")),
            "deleted_at": at(chance) if chance.random() < 0.3 else None,
        }


def incidents(chance: random.Random, log_id: str) -> Iterator[dict[str, Any]]:
    for number in range(chance.randrange(4)):
        start, state = chance.randrange(0, 4500, 50), chance.choice(("open", "open", "healed", "closed"))
        yield {
            "log_id": log_id,
            "epoch": 0,
            "id": f"{log_id}-{number}",
            "condition": "gap",
            "start": start,
            "end": start + chance.choice((50, 200, 1500)),
            "cause": state,  # of several reasons of one state any is given
            "action": chance.choice(("skipped", "quarantined", "reported", "repaired")),
            "detected_at": at(chance),
            "state": state,
            "note": chance.choice((None, "known")),
        }


def elections(chance: random.Random, log_id: str) -> Iterator[dict[str, Any]]:
    for epoch in range(chance.randrange(3)):
        for number in range(chance.randrange(1, 4)):
            is_known = chance.random() < 0.5
            yield {
                "log_id": log_id,
                "epoch": epoch,
                "number": number,
                "start": number * 100,
                "master": "a:1" if is_known else None,
                "since": at(chance),
            }


def lost_alone(_: random.Random, log_id: str) -> Iterator[dict[str, Any]]:
    """Of a log of which the ledger has nothing yet."""
    common = {"log_id": log_id, "epoch": 0, "condition": "gap", "cause": "open", "state": "open", "detected_at": NOW}
    yield common | {"id": f"{log_id}-a", "start": 0, "end": 100, "action": "skipped"}
    yield common | {"id": f"{log_id}-b", "start": 300, "end": 400, "action": "reported"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of all masters with whatever a ledger can have; none has a record."""
    lake, chance = tmp_path_factory.mktemp("lake"), random.Random(29)
    masters = ("rocketmq/broker-{}", "dister/shop-{}", "kafka/prod/orders/{}", "rocketmq/ßroker-{}")
    log_ids = [master.format(number) for master in masters for number in range(40)]

    def of_all(rows: Callable[[random.Random, str], Iterator[dict[str, Any]]]) -> list[dict[str, Any]]:
        return [row for log_id in log_ids for row in rows(chance, log_id)]

    write(lake, LOG, [])
    write(lake, LEDGER, of_all(ranges))
    write(lake, INCIDENTS, [*of_all(incidents), *lost_alone(chance, "rocketmq/lost")])
    write(lake, EPOCHS, of_all(elections))
    return lake


def worth(lake: Path) -> frozenset[str]:
    log, kafka_log = (newest(spec.path(str(lake))) for spec in (LOG, KAFKA_LOG))
    return worth_asking(str(lake), log, kafka_log)


def check(spark: SparkSession, lake: Path) -> None:
    """Every fact of the small tables; and each question that is not worth asking."""
    found = read_facts(str(lake), [], lambda _: spark.newSession())
    for name, expected in facts_in_sql(spark, str(lake)).items():
        assert getattr(found, name) == expected, name
    if not_asked := ALL - worth(lake):
        for name, expected in _Questions.opened(spark.newSession(), str(lake), not_asked).all(lambda _: None).items():
            assert getattr(found, name) == expected, name


@pytest.mark.spark
@pytest.mark.nightly
def test_whatever_a_ledger_can_have(spark: SparkSession, lake: Path) -> None:
    check(spark, lake)
    found = read_facts(str(lake), [], lambda _: spark.newSession())
    assert {one.flaw.name for one in found.flaws} == {"MISSING", "ACCEPTED", "DELETED", "DOUBTFUL"}
    assert {one.log_id for one in found.flaws} - {one.log_id for one in found.logs} == {"rocketmq/lost"}


@pytest.mark.spark
@pytest.mark.nightly
def test_real_logs(spark: SparkSession, replica: Path) -> None:
    assert worth(replica) == ALL
    check(spark, replica)


@pytest.mark.parametrize("spec", [LOG, KAFKA_LOG], ids=lambda spec: spec.name)
def test_a_replica_of_no_broker_takes_no_session(tmp_path: Path, spec: TableSpec) -> None:
    write(tmp_path, spec, [{"log_id": "dister/shop", "offset": 1, "kind": "entry"}] if spec is LOG else [])
    found = read_facts(str(tmp_path), ["rocketmq/new"], no_session)
    assert {name: getattr(found, name) for name in NOTHING} == NOTHING
    assert (found.logs, found.unseen, found.version) == ((), ("rocketmq/new",), 1)


def logged(lake: Path, *rows: dict[str, Any]) -> frozenset[str]:
    write(lake, LOG, list(rows))
    return worth(lake)


PARKED = [(name, {"transactions"}) for name in TRANSACTION_TOPICS] + [(name, {"delays"}) for name in DELAY_TOPICS]


@pytest.mark.parametrize(("topic", "more"), PARKED)
@pytest.mark.parametrize("most", [0, 500], ids=["by statistics", "by a look"])
def test_a_topic_in_which_messages_wait_is_reason_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, more: set[str], most: int
) -> None:
    monkeypatch.setattr(asked, "_MOST_FILES", most)
    assert logged(tmp_path, message(0, topic="zebra"), message(1, topic="zebra")) == {"topics"}
    assert logged(tmp_path, message(2, topic="zebra"), message(3, topic=topic)) == {"topics"} | more


def test_so_is_a_message_that_waits_in_its_own_topic(tmp_path: Path) -> None:
    assert logged(tmp_path, message(0, sys_flag=1), message(1, sys_flag=8)) == {"topics"}
    assert logged(tmp_path, message(2, sys_flag=5), message(3, sys_flag=1)) == {"topics", "transactions"}


def test_topics_around_such_a_topic_are_none(tmp_path: Path) -> None:
    assert logged(tmp_path, message(0, topic="A"), message(1, topic="zebra")) == {"topics"}


def test_of_very_many_files_what_statistics_do_not_rule_out_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "_MOST_FILES", 0)
    rows = [message(number, topic=name) for number, name in enumerate(("A", "zebra", "A", "zebra"))]
    assert logged(tmp_path, *rows) == {"topics", "transactions", "delays"}


def test_an_offset_of_a_group_that_is_current_is_reason_to_ask(tmp_path: Path) -> None:
    spec = metadata_table(CONSUMER_OFFSETS)

    def offset(*, is_current: bool) -> pa.Table:
        row = dict.fromkeys(spec.schema.names) | {"log_id": "rocketmq/broker-a", "is_current": is_current}
        return pa.Table.from_pylist([row], spec.schema)

    assert "groups" not in logged(tmp_path, message(0), message(1))
    for is_current in (False, True):
        write_deltalake(
            spec.path(str(tmp_path)), offset(is_current=is_current), mode="append", partition_by=list(spec.partitioning)
        )
        assert ("groups" in worth(tmp_path)) == is_current


def test_records_of_a_topic_are_reason_to_ask_for_topics_and_with_partitions_for_groups(tmp_path: Path) -> None:
    write(tmp_path, KAFKA_LOG, [{"log_id": "kafka/prod/orders/0", "offset": at} for at in range(2)])
    assert worth(tmp_path) == {"topics"}
    spec = metadata_table(KAFKA_PARTITIONS)
    row = dict.fromkeys(spec.schema.names) | {"log_id": "kafka/prod/orders/0", "is_current": True}
    partitions = pa.Table.from_pylist([row], spec.schema)
    write_deltalake(spec.path(str(tmp_path)), partitions, mode="append", partition_by=list(spec.partitioning))
    assert worth(tmp_path) == {"topics", "groups"}


@pytest.mark.parametrize(("name", "topics"), [("transactions", TRANSACTION_TOPICS), ("delayed_messages", DELAY_TOPICS)])
def test_the_topics_are_those_of_the_views(name: str, topics: tuple[str, ...]) -> None:
    assert all(f"'{topic}'" in view(name).query for topic in topics)
