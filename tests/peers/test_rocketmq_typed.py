"""A topic of real brokers as typed tables: row by row what Python makes of the bodies that were sent."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.peers.rocketmq import Broker
from tests.peers.typed_orders import assert_appended, fields, read, value
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.nightly]

STEPS = 2
LONG = [pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("version", "messages"),
    [("5.5.0", 600), pytest.param("4.9.7", 500_000, marks=LONG), pytest.param("5.5.0", 500_000, marks=LONG)],
)
def test_a_topic_is_a_table_with_what_does_not_fit_apart(
    spark: SparkSession, tmp_path: Path, version: str, messages: int
) -> None:
    chance = random.Random(8)
    with Broker(version, tmp_path / "broker") as broker:
        log = {"id": "rocketmq/b1", **broker.options}
        typed = {"from": ["orders"], "schema": {"id": "string", "n": "bigint", "price": "double", "late": "string"}}
        tables = [{"name": "all_orders", **typed}, {"name": "orders", **typed, "mode": "upsert", "key": ["id"]}]
        config = parse({"warehouse": str(tmp_path / "lake"), "logs": [log], "tables": tables}, where="test")
        given = []
        for step in range(STEPS):
            bodies = [value(chance, step) or b"none" for _ in range(messages // STEPS)]
            with Producer(broker.address, window=64) as producer:
                answers = producer.send_all(
                    OutgoingMessage("orders", body, queue_id=n % 4) for n, body in enumerate(bodies)
                )
                # a message's id ends with the physical offset
                places = [int(answer.msg_id[-16:], 16) for answer in answers]
            given += [
                {"log_id": "rocketmq/b1", "offset": offset, "value": body}
                for offset, body in zip(places, bodies, strict=True)
            ]
            replicate_now(spark, config)
    expected = assert_appended(spark, tmp_path / "lake", given)
    newest = {row["id"]: row for _, row in sorted(expected.items(), key=lambda one: one[0])}
    assert {row["id"]: fields(row) for row in read(spark, tmp_path / "lake", "tables/orders")} == newest
