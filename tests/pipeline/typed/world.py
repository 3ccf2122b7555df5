"""An embedded master, its replica, and a typed table of it, brought on in the test process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sinks.typed.definition import Definition
from sinks.typed.step.follower import TypedFollower
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import job_config, replicate_now


class World:
    """A master with one log, ``rocketmq/test``, and the warehouse that it is replicated into."""

    def __init__(self, spark: SparkSession, lake: str, master: Served, producer: Producer) -> None:
        self.spark = spark
        self.lake = lake
        self.master = master
        self._producer = producer

    def send(self, *bodies: object, topic: str = "orders", properties: dict[str, str] | None = None) -> None:
        """A message of each: bytes as they are, anything else as JSON."""
        for body in bodies:
            encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
            self._producer.send(OutgoingMessage(topic, encoded, properties or {}, queue_id=0))

    def replicate(self) -> None:
        """All that was sent."""
        replicate_now(self.spark, job_config(self.lake, **self.master.options))

    def follower(self, **how: Any) -> TypedFollower:
        return TypedFollower(self.spark, self.lake, definition(**how))

    def follow(self, **how: Any) -> None:
        """Replicate, and bring the table to where its log stands, with a follower of its own."""
        self.replicate()
        bring(self.follower(**how))

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        """Of the typed table, by offset."""
        frame = self.spark.read.format("delta").load(f"{self.lake}/tables/{name}").orderBy("offset", "batch_index")
        return [row.asDict(recursive=True) for row in frame.collect()]

    def unfit(self) -> list[dict[str, Any]]:
        frame = self.spark.read.format("delta").load(f"{self.lake}/unfit").orderBy("offset", "column")
        return [row.asDict() for row in frame.collect()]

    def changes(self) -> list[tuple[str, str, str | None, str]]:
        frame = self.spark.read.format("delta").load(f"{self.lake}/schema_changes").orderBy("number")
        return [(row["column"], row["change"], row["was"], row["type"]) for row in frame.collect()]


def definition(**how: Any) -> Definition:
    return Definition(**{"name": "orders", "topics": ("orders",), **how})


def bring(follower: TypedFollower, most: int = 20) -> int:
    """Until there is nothing to do; how many steps that took."""
    for steps in range(most):
        if follower.step() is None:
            follower.settle()
            return steps
    raise AssertionError(f"not done after {most} steps")


def fields(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of rows what their messages said: no place, no nulls."""
    place = ("log_id", "offset", "batch_index", "stored_at")
    return [{name: value for name, value in row.items() if name not in place and value is not None} for row in rows]


@contextmanager
def world_of(spark: SparkSession, folder: Path, lake: str | None = None) -> Iterator[World]:
    """With its warehouse in `folder`, or in `lake`."""
    with embedded_master(folder / "store") as master, Producer(master.master.address) as producer:
        yield World(spark, lake or str(folder / "lake"), master, producer)
