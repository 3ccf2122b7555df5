"""A live broker under traffic of a real Java client, its replica with the views registered, and what the client did.

The replica ends somewhere in a log that goes on: the broker puts pending half messages and timers again and again.
What the broker says is to be compared up to there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from sinks.views.registration import register
from tests.patience import wait_until
from tests.peers.java_client import VERSION, Said, Sent, java_client
from tests.peers.logical_side import Queue, consume_queues, consumer_progress, count_of, found_by_key
from tests.peers.replicating import replicating, wait_for_all
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.wire import Connection, Refused

CREATE_TOPIC, UPDATE_BROKER_CONFIG, ROUTE_OF_TOPIC = 17, 25, 105
QUEUES = 2
HALF_TOPIC, GIVEN_UP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
TOPICS = {"orders", "telemetry", "refunds", "batches", "inner", "reminders", "alarms", "transfers"}
GROUPS = ("billing", "refunding")
SLOTS = 5_000
SETTINGS: dict[str, str | int] = {
    "maxHashSlotNum": SLOTS,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 3,
    "transactionOpBatchInterval": 300,
    "timerWheelEnable": "true",
    "timerRollWindowSlot": 4,  # seconds: a timer further away is put again after that
    "mappedFileSizeTimerLog": 1024 * 1024,
    "recallMessageEnable": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
AT_REST = {
    "orders": 17,
    "transfers": 4,
    GIVEN_UP_TOPIC: 2,
    "reminders": 2,
    "alarms": 2,
    "%RETRY%refunding": 2,
    "%DLQ%refunding": 2,
}
"""What the queues of each topic hold when nothing more is to come of the traffic within minutes."""


@dataclass(frozen=True)
class Live:
    """The replica has ended at offset `end`; the broker still runs. `views` is a session that has the views."""

    spark: SparkSession
    views: SparkSession
    names: NameServer
    broker: Broker
    connection: Connection
    warehouse: Path
    said: Said
    end: int

    @cached_property
    def queues(self) -> dict[tuple[str, int, int], tuple[int, int, int]]:
        """The broker's consume queues, as far as the replica goes."""
        return {key: entry for key, entry in consume_queues(self.broker.store).items() if entry[0] < self.end}

    def rows(self, query: str) -> list[Row]:
        return self.views.sql(query).collect()

    def by_unique_key(self, query: str) -> dict[str, Row]:
        """Rows by a column `unique_key`, no two with the same."""
        rows = self.rows(query)
        found = {row["unique_key"]: row for row in rows}
        assert len(found) == len(rows)
        return found

    def found(self, topic: str, key: str) -> set[int]:
        """What the broker finds by key, as far as the replica goes."""
        return {offset for offset in found_by_key(self.connection, topic, key) if offset < self.end}

    def offset(self, one: Sent) -> int:
        """Where the broker put a message first."""
        if one.message_id is not None:
            return int(one.message_id[-16:], 16)
        return self.queues[HALF_TOPIC, 0, one.queue_offset][0]

    def store_time_ms(self, offset: int) -> int:
        """Of the record there, whose hosts are IPv4, as the broker says."""
        return int(struct.unpack_from(">q", self.connection.view(offset), 56)[0])


@contextmanager
def live_replica(spark: SparkSession, home: Path) -> Iterator[Live]:
    """Everything it starts has ended afterwards."""
    lake = home / "lake"
    with (
        NameServer(VERSION, home / "names") as names,
        Broker(VERSION, home / "broker", SETTINGS | {"namesrvAddr": names.address}) as broker,
        Connection(broker.port) as connection,
    ):
        for topic in TOPICS:
            _create(connection, topic)
        wait_until(lambda: all(_has_route(names, topic) for topic in TOPICS), "the topics at the name server")
        often = {"first_after_s": 0, "every_s": 1}
        with java_client(names, home / "client", "all") as client, replicating(spark, lake, broker, often) as job:
            wait_until(lambda: count_of(connection, GIVEN_UP_TOPIC) == 2, "transactions given up")
            connection.call(UPDATE_BROKER_CONFIG, body=b"transactionCheckMax=1000000\n")  # those that come now are not
            client.go_on()
            said = client.said()
            wait_until(lambda: _held(connection) == AT_REST, lambda: f"{AT_REST}: {_held(connection)}")
            wait_for_all(job, broker)
            wait_until(lambda: _replicated_offsets(lake) == _offsets(connection), "the groups' offsets in the replica")
        views = spark.newSession()
        register(views, str(lake))
        yield Live(spark, views, names, broker, connection, lake, said, job.progress()[0].position or 0)


def _create(connection: Connection, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
    fields |= {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES), "topicSysFlag": "0"}
    connection.call(CREATE_TOPIC, fields | ({"attributes": "+queue.type=BatchCQ"} if topic == "inner" else {}))


def _has_route(names: NameServer, topic: str) -> bool:
    with Connection(names.port) as connection:
        try:
            connection.call(ROUTE_OF_TOPIC, {"topic": topic})
        except Refused:
            return False
    return True


def _held(connection: Connection) -> dict[str, int]:
    return {topic: count_of(connection, topic) for topic in AT_REST}


def _offsets(connection: Connection) -> dict[tuple[str, Queue], int]:
    """Where the groups are, by the broker, except at the very beginning: it says so where it knows nothing, too."""
    found = {}
    for group in GROUPS:
        for queue, stats in consumer_progress(connection, group).items():
            found[group, queue] = stats["consumerOffset"]
    return {place: offset for place, offset in found.items() if offset}


def _replicated_offsets(warehouse: Path) -> dict[tuple[str, Queue], int]:
    rows = DeltaTable(str(warehouse / "consumer_offsets")).to_pyarrow_table().to_pylist()
    current = [row for row in rows if row["is_current"] and row["consumer_group"] in GROUPS]
    places = {(row["consumer_group"], (row["topic"], row["queue_id"])): row["next_queue_offset"] for row in current}
    return {place: offset for place, offset in places.items() if offset}
