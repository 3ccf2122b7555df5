"""A real broker that waits for two slaves counts connections. One replica must never be two of them."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from sources.master import Session
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.remoting import ResponseCode
from tests.patience import eventually, wait_until
from tests.peers.cluster import HOUSEKEEPING_MS, configured, connections_of, counting
from tests.peers.rocketmq import Broker
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

MESSAGES = 96
BATCHES = 10


@pytest.fixture(scope="module")
def broker(broker_550: Broker) -> Iterator[Broker]:
    with configured(broker_550, inSyncReplicas=3, slaveTimeout=1000, haHousekeepingInterval=HOUSEKEEPING_MS):
        wait_until(lambda: connections_of(broker_550) == [], "the end of others' connections")
        yield broker_550


def read_batch(log: RocketMQLog, session: Session, position: Offset) -> Offset:
    """One batch as the job does it: read in the tasks' turn, commit, acknowledge."""
    end = log.bounds().end
    with session.reading():
        chunks = list(log.read(OffsetRange(position, end), committed=position, boundary=True))
    if chunks:
        position = chunks[-1].covered.end
    session.acknowledge(up_to(position, log.log_id))
    return position


def send_waiting(broker: Broker, codes: list[int]) -> None:
    with Producer(broker.address, window=32) as producer:
        codes += [one.code for one in producer.send_all([OutgoingMessage("turns", b"x" * 500)] * MESSAGES)]


def test_one_replica_is_counted_once(broker: Broker) -> None:
    log = broker.opened()
    codes: list[int] = []
    position = log.bounds().end
    sender = threading.Thread(target=send_waiting, args=(broker, codes))
    with closing(log.open_session()) as session, counting(broker) as counts:
        sender.start()
        batches = 0
        while sender.is_alive() or batches < BATCHES:
            position = read_batch(log, session, position)
            batches += 1
        sender.join()
        position = read_batch(log, session, position)
        assert eventually(lambda: log.acknowledged_by_master() == {log.log_id: position})
        assert session.state.reconnects == 0

    assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * MESSAGES  # stored, and no replica but this one
    assert set(counts) == {0, 1}
    assert position == log.bounds().end
