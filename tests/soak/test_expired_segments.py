"""A real broker deletes a segment file that has expired, also where a session's stream has stood still in it.

A broker looks for what has expired a minute after its start at the earliest, and unmaps what is held two minutes later.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sources.offsets import LogId
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.remote_broker import BrokerAt
from sources.rocketmq.session.session import HASession
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command
from tests.patience import eventually
from tests.peers.rocketmq import Broker
from tests.sources.rocketmq.sessions import up_to

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

DELETE_EXPIRED_COMMITLOG = 329
EXPIRED_FILES = 4
FIRST_LOOK_S = 90.0
UNMAPPED_AFTER_S = 120.0  # destroyMapedFileIntervalForcibly
RENEW_AFTER_S = 2.0


@pytest.fixture(params=["4.9.7", "5.5.0"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with Broker(request.param, tmp_path, {"fileReservedTime": 1, "cleanResourceInterval": 1000}) as broker:
        send(broker, 100)
        yield broker


def send(broker: Broker, count: int) -> None:
    with Producer(broker.address, window=32) as producer:
        list(producer.send_all(OutgoingMessage("expiring", b"x" * 4000) for _ in range(count)))


def files(broker: Broker) -> list[Path]:
    return sorted(path for path in broker.commitlog.iterdir() if path.name.isdigit())


def expire_the_first(broker: Broker) -> list[Path]:
    """They were last written two hours ago, as far as the broker can tell."""
    expired = files(broker)[:EXPIRED_FILES]
    for path in expired:
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    return expired


@pytest.mark.parametrize("renew_after_s", [RENEW_AFTER_S, 3600.0], ids=["renewed", "as long"])
def test_a_file_goes_when_its_time_has_come(broker: Broker, renew_after_s: float) -> None:
    """And what is seen where a connection has stood as long as the file's time: it is kept, then unmapped."""
    master = BrokerAt(master=broker.ha_address, broker=broker.address)
    with (
        closing(HASession(master, LogId("rocketmq", "b1"), renew_after_s=renew_after_s)) as session,
        RemotingClient(broker.address) as client,
    ):
        session.acknowledge(up_to(1000, LogId("rocketmq", "b1")))
        assert eventually(lambda: session.state.connected_since is not None)
        send(broker, 2000)
        session.acknowledge(up_to(master.maximum(), LogId("rocketmq", "b1")))
        time.sleep(3 * RENEW_AFTER_S)
        expired = expire_the_first(broker)

        def asked_to_delete(path: Path) -> bool:
            client.call(Command(DELETE_EXPIRED_COMMITLOG))
            return not path.exists()

        assert eventually(lambda: asked_to_delete(expired[0]), FIRST_LOOK_S, look_every_s=0.5)
        began = time.monotonic()
        assert eventually(lambda: asked_to_delete(expired[-1]), 2 * UNMAPPED_AFTER_S, look_every_s=0.5)
        is_held = time.monotonic() - began > UNMAPPED_AFTER_S - 30
        assert is_held == (renew_after_s > RENEW_AFTER_S)
        assert session.state.reconnects == 0
    send(broker, 1)  # the broker has survived that its transfer was unmapped, and its end
    assert master.maximum() > 0
