"""A real broker that lost a page of its newest file when it was killed: what of its files is its log, by path."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.access.address import Address
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection
from tests.pipeline.running import assert_complete, job_config, replicate_now

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(600)]

BODY_BYTES = 300


def send(broker: Broker, count: int, body_bytes: int = BODY_BYTES) -> None:
    with Producer(Address("127.0.0.1", broker.port), window=1) as producer:
        list(producer.send_all(OutgoingMessage("t", b"x" * body_bytes, queues=1) for _ in range(count)))


def end_of(broker: Broker) -> int:
    """Of its log, as it says."""
    with Connection(broker.port) as connection:
        return connection.log_bounds().end


def starts(data: bytes) -> list[int]:
    """Where the records begin (specification, section 1.2)."""
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + struct.unpack_from(">i", data, found[-1])[0])
    return found[:-1]


def lose(broker: Broker, start: int, end: int) -> None:
    with broker.commitlog.joinpath(f"{0:020d}").open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


@pytest.mark.parametrize("body_bytes", [40, BODY_BYTES], ids=["a shorter one since", "one as long since"])
def test_what_a_broker_cut_off_when_it_recovered_never_becomes_rows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, body_bytes: int
) -> None:
    """Of 20 messages the 11th is lost; the nine behind it still stand on the disk, sound and in their places."""
    with Broker("5.5.0", tmp_path / "broker") as broker:
        send(broker, 20)
        whole = broker.log_bytes(end_of(broker))
        records = starts(whole)
        broker.kill()
        lose(broker, records[-10], records[-9])
        broker.start()
        assert end_of(broker) == records[-10]
        send(broker, 1, body_bytes)
        ends = [end_of(broker)]
        assert ends[0] < len(whole)
        on_disk = broker.log_bytes(len(whole))
        assert on_disk[records[-8] :] == whole[records[-8] :]

        configs = {
            on_loss: job_config(tmp_path / on_loss, path=str(broker.commitlog), on_loss=on_loss)
            for on_loss in ("fail", "record")
        }
        for on_loss, config in configs.items():
            replicate_now(spark, config)
            assert_complete(spark, tmp_path / on_loss, on_disk[: ends[0]])
            assert not (tmp_path / on_loss / "incidents").exists()
        assert f"the log ends at {ends[0]}" in caplog.text

        send(broker, 3, body_bytes)
        ends.append(end_of(broker))
        for on_loss, config in configs.items():
            replicate_now(spark, config)
            assert_complete(spark, tmp_path / on_loss, broker.log_bytes(ends[1]))
