"""Topics of a real broker as typed tables: row by row what Python makes of the values that a consumer is given."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from sinks.views.registration import register as register_tables
from sources.kafka.isolation import Isolation
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import COLUMNS, consumed
from tests.peers.kafka_traffic import Record, create_topic, producer, send, transaction
from tests.peers.typed_orders import assert_appended, fields, read, value
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.nightly]

PARTITIONS = 3
STEPS = 2
MESSAGES = 300


def record(chance: random.Random, step: int) -> Record:
    """With the key of some order, which one without a value deletes."""
    return Record(value(chance, step), f"k{chance.randrange(40)}".encode())


def test_a_topic_is_a_table_and_what_does_not_fit_is_apart(
    spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path
) -> None:
    broker = newest_kafka
    create_topic(broker, "typed-orders", PARTITIONS)
    table = {"cluster": "test", "topics": ["typed-orders"], "servers": broker.server}
    typed = {"from": ["kafka/test/typed-orders"]}
    by_key = {"mode": "upsert", "key": ["id"], "tombstones": True}
    tables = [{"name": "all_orders", **typed}, {"name": "orders", **typed, **by_key}]
    config = parse({"warehouse": str(tmp_path), "topics": [table], "tables": tables}, where="test")
    chance = random.Random(3)
    with producer(broker) as through, producer(broker, transactional_id="typed-orders") as in_transactions:
        for step in range(STEPS):
            for partition in range(PARTITIONS):
                send(through, "typed-orders", [record(chance, step) for _ in range(MESSAGES // PARTITIONS)], partition)
            for is_committed in (True, False):
                with transaction(in_transactions, commit=is_committed):
                    send(in_transactions, "typed-orders", [record(chance, step) for _ in range(5)])
            replicate_now(spark, config)
    given = [
        dict(zip(COLUMNS, row, strict=True)) | {"log_id": f"kafka/test/typed-orders/{partition}"}
        for partition in range(PARTITIONS)
        for row in consumed(broker, "typed-orders", Isolation.READ_COMMITTED, partition)
    ]
    assert len(given) == STEPS * (MESSAGES + 5)
    expected = assert_appended(spark, tmp_path, given)
    times = {(row["log_id"], row["offset"]): row["timestamp"] for row in given}
    said = {place: (row["id"], row) for place, row in expected.items()}
    said |= {(row["log_id"], row["offset"]): (row["key"].decode(), None) for row in given if row["value"] is None}
    in_log: dict[tuple[str, str], Any] = {}  # of each key the newest of each partition, which is the last there
    for (log_id, offset), (key, row) in sorted(said.items(), key=lambda one: one[0]):
        in_log[key, log_id] = (times[log_id, offset], log_id, row)
    newest = {
        key: max((one for (of, _), one in in_log.items() if of == key), key=lambda one: one[:2])[-1]
        for key, _ in in_log
    }
    of_each = {row["id"]: fields(row) for row in read(spark, tmp_path, "tables/orders") if not row["_deleted"]}
    assert of_each == {key: row for key, row in newest.items() if row is not None}
    register_tables(spark, str(tmp_path), views=())
    assert {row["id"] for row in spark.table("orders").collect()} == set(of_each)
    assert len(of_each) < len(newest)
