"""A session's connection is made anew each hour: producers that wait for this replica alone must not notice."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from sources.access.address import Address
from sources.offsets import LogId
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.remote_broker import BrokerAt
from sources.rocketmq.session.session import HASession
from sources.rocketmq.wire.remoting import ResponseCode
from tests.patience import eventually
from tests.peers.proxy import Proxy
from tests.peers.rocketmq import Broker
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(120)]

RENEWALS = 20


def test_no_producer_is_told_that_there_is_no_slave(tmp_path: Path) -> None:
    """As 4.x does at once when none is connected."""
    settings: dict[str, str | int] = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 60_000}
    with Broker("4.9.7", tmp_path, settings) as broker, Proxy(broker.ha_port) as proxy:
        master = BrokerAt(master=Address("127.0.0.1", proxy.port), broker=broker.address)
        with closing(HASession(master, LogId("rocketmq", "b1"), renew_after_s=0.1)) as session:
            with Producer(broker.address) as producer:
                assert producer.send(OutgoingMessage("renewed", b"alone")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            session.acknowledge(up_to(master.maximum(), LogId("rocketmq", "b1")))
            assert eventually(lambda: session.state.connected_since is not None)
            is_over = threading.Event()
            follower = threading.Thread(target=lambda: follow(session, master, is_over))
            follower.start()
            codes = []
            with Producer(broker.address) as producer:
                while proxy.connections < RENEWALS:
                    codes.append(producer.send(OutgoingMessage("renewed", b"held")).code)
            is_over.set()
            follower.join()
            assert session.state.reconnects == 0
        assert set(codes) == {ResponseCode.SUCCESS}
        assert len(codes) > RENEWALS


def follow(session: HASession, master: BrokerAt, is_over: threading.Event) -> None:
    """As a replica that has everything at once."""
    while not is_over.is_set():
        session.acknowledge(up_to(master.maximum(), LogId("rocketmq", "b1")))
