"""A log, its replica, and typed tables of it, brought on in the test process."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.typed.definition import Definition
from sinks.typed.step.follower import TypedFollower
from sources.offsets import Offset
from sources.registry import open_log
from sources.rocketmq.embedded.store import CommitLogStore, Put
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.pipeline.faulty_log import BORN_MS, HOST
from tests.pipeline.masters import Served as EmbeddedServed
from tests.pipeline.masters import embedded_master
from tests.pipeline.running import job_config, replicate_now
from tests.sinks.batches import Solo, opened, ranges

_FILE_SIZE_BYTES = 16 << 20


class World:
    """A master with one log, ``rocketmq/test``, and the warehouse that it is replicated into."""

    options: dict[str, str]
    """How a log's configuration reaches the master."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        self.spark = spark
        self.lake = lake

    def send(
        self, *bodies: object, topic: str = "orders", properties: dict[str, str] | None = None, sys_flag: int = 0
    ) -> None:
        """A message of each: bytes as they are, anything else as JSON."""
        for body in bodies:
            encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
            self._put(OutgoingMessage(topic, encoded, properties or {}, queue_id=0, sys_flag=sys_flag))

    def _put(self, message: OutgoingMessage) -> None:
        raise NotImplementedError

    def replicate(self) -> None:
        """All that was sent."""
        raise NotImplementedError

    def follower(self, **how: Any) -> TypedFollower:
        return TypedFollower(self.spark, self.lake, definition(**how))

    def follow(self, **how: Any) -> None:
        """Replicate, and bring the table to where its log stands, with a follower of its own."""
        self.replicate()
        bring(self.follower(**how))

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        """Of the typed table, by offset."""
        return self._read(f"tables/{name}", "offset", "batch_index")

    def unfit(self) -> list[dict[str, Any]]:
        return self._read("unfit", "offset", "column")

    def changes(self) -> list[tuple[str, str, str | None, str]]:
        rows = self._read("schema_changes", "number")
        return [(row["column"], row["change"], row["was"], row["type"]) for row in rows]

    def _read(self, table: str, *order: str) -> list[dict[str, Any]]:
        """By delta-rs, nulls first."""
        rows: list[dict[str, Any]] = DeltaTable(f"{self.lake}/{table}").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in order])


class Served(World):
    """Of an embedded master, replicated by a job."""

    def __init__(self, spark: SparkSession, lake: str, master: EmbeddedServed, producer: Producer) -> None:
        super().__init__(spark, lake)
        self.master = master
        self.options = master.options
        self._producer = producer

    def _put(self, message: OutgoingMessage) -> None:
        self._producer.send(message)

    def replicate(self) -> None:
        replicate_now(self.spark, job_config(self.lake, **self.options))


class InFiles(World):
    """Of segment files in `folder`, replicated a batch at a time by the sink alone."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, str(folder / "lake"))
        self._store = CommitLogStore(folder / "store", HOST, file_size_bytes=_FILE_SIZE_BYTES)
        self.options = {"path": str(folder / "store" / "commitlog")}
        self._log = open_log(job_config(self.lake, **self.options).logs[0])
        self._replica: Solo | None = None

    def _put(self, message: OutgoingMessage) -> None:
        properties = "".join(f"{name}\x01{value}\x02" for name, value in message.properties.items()).encode()
        self._store.append([Put(topic=message.topic, queue_id=0, body=message.body, properties=properties,
                                born_host=HOST, born_timestamp_ms=BORN_MS, sys_flag=message.sys_flag)])  # fmt: skip

    def replicate(self) -> None:
        self._store.flush()
        if self._replica is None:
            self._replica = opened(self.spark, Path(self.lake), self._log)
        end = self._log.bounds().end
        start = self._replica.position() or Offset(0)
        if start < end:
            self._replica(ranges(start, end, log_id=str(self._log.log_id)))

    def close(self) -> None:
        self._store.close()


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
def world_of(spark: SparkSession, folder: Path) -> Iterator[Served]:
    with embedded_master(folder / "store") as master, Producer(master.master.address) as producer:
        yield Served(spark, str(folder / "lake"), master, producer)
