"""A master found by name, through real name servers, wherever it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sources.access.address import Address
from sources.errors import MasterUnreachable
from sources.offsets import LogId
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.remote_broker import NamedBroker
from tests.patience import eventually, wait_until
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.peers.sender import Sender
from tests.sources.rocketmq.log_reading import chunks_of
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.fixture(params=["4.9.7", "5.5.0"])
def name_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NameServer]:
    with NameServer(request.param, tmp_path / "name-server") as running:
        yield running


def found(name_server: NameServer) -> Address | None:
    try:
        return NamedBroker(name="b1", asked=(Address.parse(name_server.address),)).remoting()
    except MasterUnreachable:
        return None


def send(broker: Broker, count: int) -> None:
    """So many messages, once the broker stores one: one that has just started refuses some."""
    sender = Sender(broker.port, "moves")
    wait_until(lambda: sender.send(1)[0].is_ok, "a stored message")
    assert all(one.is_ok for one in sender.send(count))


def read_all(log: RocketMQLog) -> bytes:
    chunks = chunks_of(log.read(log.bounds(), committed=None, boundary=True))
    return b"".join(bytes(chunk.raw) for chunk in chunks)


def test_a_master_that_moves_is_followed(name_server: NameServer, tmp_path: Path) -> None:
    """MS-13, HA-11: stopped here, started there on a copy of its store; HA-60: and nobody there in between."""
    log = RocketMQLog(
        log_id=LogId("rocketmq", "b1"), name_servers=(Address.parse(name_server.address),), connect_timeout_ms=10_000
    )
    with pytest.raises(MasterUnreachable, match="knows no master of b1"):
        log.bounds()
    named: dict[str, str | int] = {"namesrvAddr": name_server.address, "brokerName": "b1"}
    here, there = (Broker(name_server.version, tmp_path / place, named) for place in ("here", "there"))
    with here, closing(log.open_session()) as session:
        assert eventually(lambda: found(name_server) == here.address)
        log.check()
        send(here, 100)
        before = read_all(log)
        session.acknowledge(up_to(log.bounds().end, LogId("rocketmq", "b1")))
        assert eventually(lambda: session.state.connected_since is not None)

        here.stop()
        assert eventually(lambda: session.state.connected_since is None)
        shutil.copytree(here.store, there.store)
        with there:
            assert eventually(lambda: session.state.connected_since is not None)
            assert session.state.reconnects == 1
            send(there, 100)
            after = read_all(log)
            session.acknowledge(up_to(log.bounds().end, LogId("rocketmq", "b1")))
            if there.version == "5.5.0":  # 4.x does not tell
                assert eventually(lambda: log.acknowledged_by_master() == {log.log_id: log.bounds().end})
            assert after == there.log_bytes(log.bounds().end)
    assert len(after) > len(before) > 0
    assert after.startswith(before)
