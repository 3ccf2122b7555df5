"""The acknowledging session against real brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sources.offsets import LogId
from sources.rocketmq.session.ha_client import read_stream
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode
from sources.rocketmq.wire.send_header import SendHeader, encode_send_header
from tests.patience import eventually
from tests.peers.cluster import configured
from tests.peers.rocketmq import Broker
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

LOG_ID = LogId("rocketmq", "b1")
NOBODY_THERE = {"4.9.7": ResponseCode.SLAVE_NOT_AVAILABLE, "5.5.0": ResponseCode.FLUSH_SLAVE_TIMEOUT}
PATIENCE_S = 60.0


def client_of(broker: Broker) -> RemotingClient:
    return RemotingClient(broker.address, call_timeout_ms=10_000)


def send(client: RemotingClient, topic: str, body: bytes) -> Command:
    code = RequestCode.SEND_MESSAGE_V2
    header = SendHeader(
        producer_group="pg-ha",
        topic=topic,
        queue_id=0,
        born_timestamp_ms=time.time_ns() // 1_000_000,
        properties="TAGS\x01ha\x02",
    )
    return client.exchange(Command(code, ext_fields=encode_send_header(header, code), body=body))


@pytest.fixture
def waiting(each_broker: Broker, tmp_path: Path) -> Iterator[Broker]:
    """A master whose producers wait for one slave, for half a second."""
    if each_broker.version == "4.9.7":
        with Broker("4.9.7", tmp_path, {"slaveTimeout": 500, "brokerRole": "SYNC_MASTER"}) as broker:
            yield broker
        return
    with configured(each_broker, inSyncReplicas=2, slaveTimeout=500):
        yield each_broker


def test_a_producer_waits_for_the_acknowledgement_and_for_nothing_else(waiting: Broker) -> None:
    """HA-47: neither for a connection nor for a reader, who acknowledges nothing."""
    log = waiting.opened()
    topic = "waits"
    with (
        client_of(waiting) as sender,
        client_of(waiting) as observer,
        ThreadPoolExecutor(1) as pool,
        closing(log.open_session()) as session,
    ):
        assert send(sender, topic, b"nobody there").code == NOBODY_THERE[waiting.version]
        bounds = observer.commit_log_bounds()
        with closing(read_stream(waiting.ha_address, bounds.start)) as pieces:
            taken = 0
            while taken < bounds.size:
                taken += len(next(pieces))
            # everything is read and nothing acknowledged: the producer must not be told that a slave has it
            assert send(sender, topic, b"read only").code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        end = observer.commit_log_bounds().end
        session.acknowledge(up_to(end, LOG_ID))
        assert eventually(lambda: session.state.acknowledged == end)

        # connected, nothing promised beyond: the producer is told so after its time
        assert eventually(lambda: send(sender, topic, b"unheard").code == ResponseCode.FLUSH_SLAVE_TIMEOUT)

        with configured(waiting, slaveTimeout=60_000):
            for _ in range(5):
                before = observer.commit_log_bounds().end
                session.acknowledge(up_to(before, LOG_ID))
                answer = pool.submit(send, sender, topic, b"heard")
                assert eventually(lambda end=before: observer.commit_log_bounds().end > end)  # type: ignore[misc]
                assert not answer.done()
                session.acknowledge(up_to(observer.commit_log_bounds().end, LOG_ID))
                assert answer.result(PATIENCE_S).code == ResponseCode.SUCCESS
