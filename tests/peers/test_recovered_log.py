"""A real broker that lost a page of its newest file when it was killed: what of its files is its log, by path."""

import struct
from pathlib import Path

import pytest

from sources.offsets import LogId
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.peers.replicating import end_of
from tests.peers.rocketmq import Broker
from tests.sources.rocketmq.log_reading import read

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

BODY_BYTES = 300


def send(broker: Broker, count: int, body_bytes: int = BODY_BYTES) -> None:
    with Producer(broker.address, window=1) as producer:
        list(producer.send_all(OutgoingMessage("t", b"x" * body_bytes, queues=1) for _ in range(count)))


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


def read_from(broker: Broker, start: int) -> tuple[bytes, int]:
    """All that can be read by path from `start` on, and where it ends."""
    log = RocketMQLog(log_id=LogId("rocketmq", "b1"), path=str(broker.commitlog))
    chunks = read(log, start, log.bounds().end, committed=start)
    return b"".join(chunk.raw for chunk in chunks), chunks[-1].covered.end


@pytest.mark.parametrize(
    "body_bytes",
    [pytest.param(40, marks=pytest.mark.nightly), BODY_BYTES],
    ids=["a shorter one since", "one as long since"],
)
def test_what_a_broker_cut_off_when_it_recovered_is_never_read(tmp_path: Path, body_bytes: int) -> None:
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
        end = end_of(broker)
        assert end < len(whole)
        on_disk = broker.log_bytes(len(whole))
        assert on_disk[records[-8] :] == whole[records[-8] :]
        assert read_from(broker, 0) == (on_disk[:end], end)

        send(broker, 3, body_bytes)
        later = end_of(broker)
        assert read_from(broker, end) == (broker.log_bytes(later)[end:], later)
