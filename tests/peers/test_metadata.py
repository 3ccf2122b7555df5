"""Metadata of real brokers: what the tables say beside what the test did, and what the brokers' own files say."""

import json
import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.job.metadata_sync import MetadataSync
from sources.offsets import LogId
from sources.rocketmq import metadata
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command
from tests.patience import wait_until
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection
from tests.pipeline.sample_progress import PROGRESS
from tests.sources.rocketmq.embedded.conversation import lenient_json

pytestmark = [pytest.mark.peer, pytest.mark.spark]

PULL, UPDATE_CONSUMER_OFFSET, CREATE_TOPIC, DELETE_TOPIC, SET_REQUEST_MODE = 11, 15, 17, 215, 401
TEN_MINUTES_MS = 600_000
SETTINGS: dict[str, str | int] = {
    "timerWheelEnable": "true",
    "flushConsumerOffsetInterval": 500,  # ms; the first time it takes 10 s all the same
    "flushDelayOffsetInterval": 500,
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Synced:
    """A broker's metadata after some changes: the tables, the files it left when it was stopped, and our log."""

    version: str
    warehouse: Path
    config: Path

    def rows(self, table: str) -> list[Row]:
        found: list[Row] = DeltaTable(str(self.warehouse / table)).to_pyarrow_table().to_pylist()
        return found

    def current(self, table: str) -> list[Row]:
        return [row for row in self.rows(table) if row["is_current"]]

    def history(self, table: str, column: str, **key: object) -> list[Any]:
        """The values of `column` that an item had, in order; None last where it is gone. Its versions must join."""
        found = [row for row in self.rows(table) if all(row[name] == value for name, value in key.items())]
        found.sort(key=lambda row: row["valid_from"])
        ends: list[datetime | None] = [row["valid_to"] for row in found]
        assert ends[:-1] == [row["valid_from"] for row in found[1:]]
        return [row[column] for row in found] + ([None] if ends[-1] else [])

    def file(self, name: str) -> Any:
        """A configuration file of the broker's."""
        return lenient_json((self.config / name).read_bytes())


@pytest.fixture(scope="module", params=["5.5.0", pytest.param("4.9.7", marks=pytest.mark.nightly)])
def synced(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Synced]:
    folder = tmp_path_factory.mktemp(f"metadata-{request.param}")
    result = Synced(request.param, folder / "warehouse", folder / "broker/store/config")
    noted = BufferingHandler(1000)
    noted.setLevel(logging.WARNING)
    logging.getLogger("pipeline.job.metadata_sync").addHandler(noted)
    with Broker(request.param, folder / "broker", SETTINGS) as broker:
        running = _sync_of(spark, broker, result.warehouse)
        with Connection(broker.port) as connection:
            _first(connection, request.param)
            running.start()
            try:
                wait_until(lambda: _has(result, "consumer_offsets") and _has(result, "delay_offsets"), "offsets")
                _then(connection, result)
            finally:
                running.stop()
        wait_until(lambda: _is_on_disk(result), "the broker's own files")
    logging.getLogger("pipeline.job.metadata_sync").removeHandler(noted)
    # neither what 4.9.7 does not know nor a fetch in the middle of a change is an error
    assert [one.getMessage() for one in noted.buffer] == []
    yield result


def _sync_of(spark: SparkSession, broker: Broker, warehouse: Path) -> MetadataSync:
    def ask(request: Command) -> Command:
        with RemotingClient(broker.address) as client:
            return client.exchange(request)

    rhythm = {"first_after_s": 0, "every_s": 0.8}
    config = parse({"warehouse": str(warehouse), "metadata": rhythm}, where="test")
    return MetadataSync(spark, config, LogId("rocketmq", "b1"), lambda: metadata.fetch(ask), lambda: PROGRESS)


def _first(connection: Connection, version: str) -> None:
    """Topics, a group that has consumed one message, a delayed one that was delivered, a timed one that waits."""
    for topic in ("T1", "T2"):
        _create_topic(connection, topic, perm=6)
    connection.send(b"one")
    connection.send(b"delayed by a second", "DELAY\x011\x02KEYS\x01k\x02")
    _pull(connection)  # makes the group
    _commit(connection, 1)
    if version == "5.5.0":
        connection.send(b"timed", f"TIMER_DELAY_MS\x01{TEN_MINUTES_MS}\x02KEYS\x01k\x02")
        mode = {"topic": "T1", "consumerGroup": "CG", "mode": "POP", "popShareQueueNum": 2}
        connection.call(SET_REQUEST_MODE, body=json.dumps(mode).encode())


def _then(connection: Connection, result: Synced) -> None:
    """A topic changes, one goes, the group moves on; until the tables say so."""
    wait_until(lambda: result.history("topics", "perm", topic="T2") == [6], "T2")
    _create_topic(connection, "T1", perm=4)
    connection.call(DELETE_TOPIC, {"topic": "T2"})
    _commit(connection, 2)
    wait_until(lambda: result.history("topics", "perm", topic="T2") == [6, None], "the end of T2")
    wait_until(lambda: result.history("topics", "perm", topic="T1") == [6, 4], "the change of T1")
    wait_until(lambda: _offsets_of_group(result)[-1] == 2, "the group's new offset")
    wait_until(lambda: _delays(result) == {"1": 1}, "the delivery of the delayed message")
    if result.version == "5.5.0":
        wait_until(lambda: _has(result, "timer_metrics"), "the timer's metrics")
        wait_until(lambda: _has_flushed_timer(result), "the timer")


def _has(result: Synced, table: str) -> bool:
    return (result.warehouse / table / "_delta_log" / f"{1:020d}.json").exists()


def _has_flushed_timer(result: Synced) -> bool:
    """The broker takes the timed message over first, and writes its timer log a moment later."""
    (row,) = result.current("timer_checkpoint")
    return bool(row["last_timer_queue_offset"] == 1 and row["last_timer_log_flush_position"] > 0)


def _offsets_of_group(result: Synced) -> list[int]:
    key = {"topic": "orders", "consumer_group": "CG", "queue_id": 0}
    offsets = result.history("consumer_offsets", "next_queue_offset", **key)
    return [offset for at, offset in enumerate(offsets) if at == 0 or offset != offsets[at - 1]]


def _delays(result: Synced) -> dict[str, int]:
    return {str(row["delay_level"]): row["next_queue_offset"] for row in result.current("delay_offsets")}


def _is_on_disk(result: Synced) -> bool:
    """A broker writes offsets now and then, and not all of them when it stops."""
    try:
        offsets = result.file("consumerOffset.json")["offsetTable"]
        delays = result.file("delayOffset.json")["offsetTable"]
        return (offsets["orders@CG"], delays) == ({"0": 2}, {"1": 1})
    except (FileNotFoundError, KeyError, json.JSONDecodeError):  # not yet, not that far, being written
        return False


def _create_topic(connection: Connection, topic: str, perm: int) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2"}
    fields |= {"perm": str(perm), "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    connection.call(CREATE_TOPIC, fields | {"attributes": "+message.type=FIFO"} if perm == 6 else fields)


def _pull(connection: Connection) -> None:
    fields = {"consumerGroup": "CG", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*"}
    connection.call(PULL, fields | {"subVersion": "1", "expressionType": "TAG"})


def _commit(connection: Connection, offset: int) -> None:
    fields = {"consumerGroup": "CG", "topic": "orders", "queueId": "0", "commitOffset": str(offset)}
    connection.call(UPDATE_CONSUMER_OFFSET, fields)


def test_topics_are_those_of_the_brokers_file(synced: Synced) -> None:
    """MS-16: also one that changed, and one that went."""
    expected = synced.file("topics.json")["topicConfigTable"]
    assert "T1" in expected
    found = {row["topic"]: row for row in synced.current("topics")}
    assert found.keys() == expected.keys()
    for topic, config in expected.items():
        row = found[topic]
        assert json.loads(row["stored"]) == config
        assert (row["read_queue_nums"], row["write_queue_nums"]) == (config["readQueueNums"], config["writeQueueNums"])
        assert (row["perm"], row["topic_filter_type"]) == (config["perm"], config["topicFilterType"])
        assert (row["topic_sys_flag"], row["ordered"]) == (config["topicSysFlag"], config["order"])
        assert (row["attributes"] is None) == (synced.version == "4.9.7")
        assert dict(row["attributes"] or []) == config.get("attributes", {})
    assert synced.history("topics", "perm", topic="T1") == [6, 4]
    assert synced.history("topics", "read_queue_nums", topic="T2") == [3, None]
    attributes = synced.history("topics", "attributes", topic="T1")[0]
    assert attributes == (None if synced.version == "4.9.7" else [("message.type", "FIFO")])


def test_groups_are_those_of_the_brokers_file(synced: Synced) -> None:
    """MS-16."""
    expected = synced.file("subscriptionGroup.json")["subscriptionGroupTable"]
    assert "CG" in expected
    found = {row["consumer_group"]: row for row in synced.current("subscription_groups")}
    assert {group: json.loads(row["stored"]) for group, row in found.items()} == expected
    group = found["CG"]
    assert (group["consume_enable"], group["retry_max_times"], group["retry_queue_nums"]) == (True, 16, 1)
    assert group["consume_timeout_minute"] == (None if synced.version == "4.9.7" else 15)


def test_offsets_are_those_of_the_brokers_files_and_what_the_group_did(synced: Synced) -> None:
    """MS-16."""
    assert _offsets_of_group(synced) == [1, 2]
    expected = synced.file("consumerOffset.json")["offsetTable"]
    found: dict[str, dict[str, int]] = {}
    for row in synced.current("consumer_offsets"):
        if row["next_queue_offset"] is not None:
            queues = found.setdefault(f"{row['topic']}@{row['consumer_group']}", {})
            queues[str(row["queue_id"])] = row["next_queue_offset"]
    assert found == expected
    assert found["orders@CG"] == {"0": 2}
    assert _delays(synced) == synced.file("delayOffset.json")["offsetTable"] == {"1": 1}


def test_the_extras_of_5_x_are_there_where_the_broker_has_them(synced: Synced) -> None:
    """MS-16."""
    extras = ("message_request_modes", "timer_metrics", "timer_checkpoint")
    there = {name for name in extras if (synced.warehouse / name).exists()}
    if synced.version == "4.9.7":
        assert there == set()
        return
    assert there == set(extras)
    (mode,) = synced.current("message_request_modes")
    assert json.loads(mode["stored"]) == synced.file("messageRequestMode.json")["messageRequestModeMap"]["T1"]["CG"]
    assert (mode["topic"], mode["consumer_group"], mode["mode"], mode["pop_share_queue_num"]) == ("T1", "CG", "POP", 2)

    (metrics,) = synced.current("timer_metrics")
    assert (metrics["topic"], metrics["waiting"]) == ("orders", 1)
    counted = json.loads((synced.config / "timermetrics").read_text())["timingCount"]["orders"]
    assert (counted["count"], counted["timeStamp"]) == (1, round(metrics["counted_at"].timestamp() * 1000))

    (checkpoint,) = synced.current("timer_checkpoint")
    _, flushed, queue_offset, masters = struct.unpack_from(">4q", (synced.config / "timercheck").read_bytes())
    assert checkpoint["last_timer_log_flush_position"] == flushed > 0
    assert checkpoint["last_timer_queue_offset"] == queue_offset == 1
    assert checkpoint["master_timer_queue_offset"] == masters
    positions = [tuple(row.values())[1:4] for row in synced.rows("timer_checkpoint")]  # it does not tick
    assert len(set(positions)) == len(positions)
