"""The real Kafka brokers that other tests rely on: they keep what they were sent, and leave no process behind."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from tests.peers.kafka import EACH_VERSION, VERSIONS, KafkaBroker, kafka_cluster
from tests.peers.kafka_traffic import (
    Record,
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    producer,
    send,
    transaction,
)
from tests.peers.process import PeerFailed

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("version", EACH_VERSION)
def test_a_broker_goes_on_with_its_store_and_leaves_no_process(version: str, tmp_path: Path) -> None:
    with KafkaBroker(version, tmp_path) as broker:
        create_topic(broker, "orders", 2, max_message_bytes=100_000)
        with producer(broker) as one:
            assert send(one, "orders", [Record(b"before the crash")] * 3, partition=1) == [0, 1, 2]
        pids = [broker.pid]
        broker.kill()
        broker.start()
        pids.append(broker.pid)
        with producer(broker) as one:
            assert send(one, "orders", [Record(b"after it")], partition=1) == [3]
        broker.stop()
        broker.start()
        pids.append(broker.pid)
        with producer(broker) as one:
            assert send(one, "orders", [Record(b"after an orderly end")], partition=1) == [4]
        segment = broker.partition_folder("orders", 1) / f"{0:020}.log"
        assert all(text in segment.read_bytes() for text in (b"before the crash", b"after it", b"after an orderly end"))
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.parametrize("version", EACH_VERSION)
def test_records_of_every_kind_can_be_sent(version: str, tmp_path: Path) -> None:
    with KafkaBroker(version, tmp_path) as broker:
        create_topic(broker, "kinds")
        record = Record(b"value", b"key", [("header", b"x")], timestamp_ms=1_700_000_000_000)
        for number, compression in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
            with producer(broker, compression_type=compression) as one:
                assert send(one, "kinds", [record, Record(None, b"key")]) == [2 * number, 2 * number + 1]
        with producer(broker, transactional_id="t") as one:
            for is_committed, first in ((True, 10), (False, 12)):  # each ends with a marker
                with transaction(one, commit=is_committed):
                    assert send(one, "kinds", [record]) == [first]
        delete_records(broker, "kinds", 0, before=12)
        add_partitions(broker, "kinds", 2)
        with producer(broker) as one:
            assert send(one, "kinds", [record], partition=1) == [0]
        delete_topic(broker, "kinds")
        create_topic(broker, "kinds")
        with producer(broker) as one:
            assert send(one, "kinds", [record]) == [0]


def test_a_broker_that_does_not_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    broker = KafkaBroker(VERSIONS[-1], tmp_path)
    with socket.create_server(("127.0.0.1", broker.port)), pytest.raises(PeerFailed, match="Address already in use"):
        broker.start()
    with pytest.raises(PeerFailed, match="does not run"):
        _ = broker.pid
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(tmp_path) in " ".join(command)]


@pytest.mark.soak
def test_a_broker_that_was_behind_may_be_made_to_lead(tmp_path: Path) -> None:
    """What only the other one had is gone then, and its offsets are given again."""
    with kafka_cluster(VERSIONS[-1], tmp_path, 3, {"unclean.leader.election.enable": "true"}) as (first, ahead, behind):
        create_topic(first, "cut", replicas=[[ahead.node_id, behind.node_id]])
        with producer(first) as one:
            assert send(one, "cut", [Record(b"both have it")]) == [0]
            behind.kill()
            assert send(one, "cut", [Record(b"one has it")]) == [1]
        ahead.kill()
        behind.start()
        with producer(first) as one:
            assert send(one, "cut", [Record(b"the other has it")]) == [1]
