"""Networks that break at any byte, between logtwin and real brokers: the bytes stay the broker's."""

import threading
from contextlib import closing, suppress
from dataclasses import dataclass

import pytest

from sources.errors import MasterUnreachable
from sources.offsets import LogId, Offset, OffsetRange
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.remote_broker import BrokerAt
from sources.rocketmq.session.session import HASession
from tests.patience import wait_until
from tests.peers.cluster import connections_of
from tests.peers.replicating import end_of
from tests.peers.rocketmq import Broker
from tests.pipeline.faulty_link import Link, random_cuts
from tests.sources.rocketmq.log_reading import chunks_of
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

LOG_ID = LogId("rocketmq", "b1")
CUTS = 100
ACKNOWLEDGING_CUTS = 30
LOG_BYTES = 4_000_000
LONGEST_CUT_BYTES = LOG_BYTES // CUTS - 1_000  # so 100 connections cannot be enough for the whole log
CHUNK_BYTES = 16 * 1024
BODY = bytes(range(256)) * 10
ONLY_NEWEST = pytest.mark.parametrize("each_broker", ["broker_550"], indirect=True)


@dataclass(frozen=True)
class Links:
    """A broker whose log has grown by `LOG_BYTES` and more since offset `start`."""

    broker: Broker
    start: Offset

    def files_up_to(self, end: int) -> bytes:
        return self.broker.log_bytes(end)[self.start :]


@pytest.fixture(scope="module")
def links(each_broker: Broker) -> Links:
    start = end_of(each_broker)
    if start:
        wait_until(lambda: connections_of(each_broker) == [], "the end of others' connections")
    with Producer(each_broker.address, window=32) as producer:
        while end_of(each_broker) < start + LOG_BYTES:
            assert all(one.is_stored for one in producer.send_all([OutgoingMessage("links", BODY)] * 200))
    return Links(each_broker, Offset(start))


@pytest.fixture(scope="module")
def broker(links: Links) -> Broker:
    return links.broker


def replica_of(log: RocketMQLog, start: int, end: int) -> bytes:
    """The log from `start` up to `end`, in as many attempts as it takes; each keeps every whole record it was sent."""
    held = bytearray()
    while start + len(held) < end:
        at = Offset(start + len(held))
        with suppress(MasterUnreachable):
            for chunk in chunks_of(log.read(OffsetRange(at, Offset(end)), committed=at, boundary=True)):
                assert chunk.covered.start == start + len(held)
                held += chunk.raw
    return bytes(held)


def test_reading_over_a_connection_that_is_cut_a_hundred_times(links: Links, broker: Broker) -> None:
    """HA-43, HA-54, HA-55, HA-58, HA-69: at any byte, in both directions."""
    end = end_of(broker)
    with Link(broker.ha_address, cuts=random_cuts(69, CUTS, LONGEST_CUT_BYTES)) as link:
        # one connection a read, so that every break is met by whoever reads
        log = broker.opened(master=link.address, chunk_bytes=CHUNK_BYTES, connect_attempts=1)
        replica = replica_of(log, links.start, end)
        assert link.cut_connections == CUTS
    assert replica == links.files_up_to(end)


@ONLY_NEWEST
def test_acknowledging_over_a_connection_that_is_cut_again_and_again(broker: Broker) -> None:
    """HA-49, HA-59: the broker never counts what was not acknowledged, and in the end all that was."""
    end = end_of(broker)
    pause = threading.Event()
    with Link(broker.ha_address, cuts=random_cuts(49, ACKNOWLEDGING_CUTS, 4000)) as link:
        master = BrokerAt(master=link.address, broker=broker.address)
        with closing(HASession(master, LOG_ID, longest_wait_s=0.1)) as session:
            promised = end - LOG_BYTES
            while link.cut_connections < ACKNOWLEDGING_CUTS:
                promised = min(promised + 1000, end - 1000)
                session.acknowledge(up_to(promised, LOG_ID))
                pause.wait(0.01)
                assert all(one["slaveAckOffset"] <= promised for one in connections_of(broker))
            session.acknowledge(up_to(end, LOG_ID))
            wait_until(lambda: [one["slaveAckOffset"] for one in connections_of(broker)] == [end], "all acknowledged")
            assert session.state.reconnects > 0
