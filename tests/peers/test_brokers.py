"""Real brokers start, answer, store and stop; their segment files are read while they write them."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import psutil
import pytest

from sources.errors import ConfigurationError
from sources.offsets import OffsetRange
from sources.rocketmq.files.segments import Segments
from tests.patience import wait_until
from tests.peers.cluster import knows
from tests.peers.name_server import NameServer
from tests.peers.process import PeerFailed
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import free_ports
from tests.peers.wire import Connection
from tests.sources.rocketmq.log_reading import chunks_of

pytestmark = pytest.mark.peer

MESSAGES = 2000


@pytest.fixture(params=["4.9.7", "5.5.0"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each version in turn."""
    running: Broker = request.getfixturevalue({"4.9.7": "broker_497", "5.5.0": "broker_550"}[request.param])
    return running


def bodies(segments: Segments, wanted: OffsetRange) -> dict[int, bytes]:
    """The records that start in `wanted`: offset -> body, None for a blank."""
    found: dict[int, bytes] = {}
    for chunk in chunks_of(segments.chunks(wanted, True, 64 * 1024)):
        found |= zip(chunk.records["offset"].to_pylist(), chunk.records["body"].to_pylist(), strict=True)
    return found


def test_a_message_is_found_in_the_files_of_a_running_broker(broker: Broker) -> None:
    with Connection(broker.port) as connection:
        offset = connection.send(b"found by path")
        segments = Segments(broker.commitlog)
        bounds = segments.bounds()
        assert bounds == connection.log_bounds()
    assert bodies(segments, bounds)[offset] == b"found by path"


def test_the_end_of_the_files_is_the_brokers_end_after_each_message(broker: Broker) -> None:
    segments, known = Segments(broker.commitlog), None
    with Connection(broker.port) as connection:
        for size in (0, 1, 4000, 300_000, 400_000, 500_000, 10):  # over the end of a file
            connection.send(b"x" * size if size else b" ", "")
            known = segments.bounds(known).end
            assert known == connection.log_bounds().end


def test_a_log_is_read_while_the_broker_appends(broker: Broker) -> None:
    """No false alarm at the tail, no record missed, none read before it is whole."""
    with Connection(broker.port) as connection:
        connection.send(b"makes the first file")
        segments = Segments(broker.commitlog)
        start = at = segments.bounds().end
        sent: dict[int, bytes] = {}

        def produce() -> None:
            for number in range(MESSAGES):
                body = b"%d " % number * (1 + number % 300)
                sent[connection.send(body)] = body

        producer = threading.Thread(target=produce)
        producer.start()
        found: dict[int, bytes] = {}
        looks = 0
        is_last_look = False
        while not is_last_look:
            is_last_look = not producer.is_alive()
            end = segments.bounds(at).end
            found |= bodies(segments, OffsetRange(at, end))
            at, looks = end, looks + 1
        producer.join()
        assert at == connection.log_bounds().end
    assert len(sent) == MESSAGES
    assert {offset: body for offset, body in found.items() if body is not None} == sent
    assert looks > 20
    assert bodies(segments, OffsetRange(start, at)) == found


@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=pytest.mark.soak), "5.5.0"])
def test_a_broker_goes_on_with_its_store_and_leaves_no_process(version: str, tmp_path: Path) -> None:
    with Broker(version, tmp_path) as broker:
        with pytest.raises(ConfigurationError, match="no segment file"):
            Segments(broker.commitlog).bounds()
        with Connection(broker.port) as connection:
            connection.send(b"before the crash")
        first = broker.pid
        broker.kill()
        before = Segments(broker.commitlog).bounds()
        broker.start()
        with Connection(broker.port) as connection:
            assert connection.send(b"after it") == before.end
        second = broker.pid
    assert not psutil.pid_exists(first)
    assert not psutil.pid_exists(second)
    assert list(bodies(Segments(broker.commitlog), Segments(broker.commitlog).bounds()).values()) == [
        b"before the crash",
        b"after it",
    ]


def test_a_broker_that_does_not_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    broker = Broker("5.5.0", tmp_path)
    with socket.create_server(("127.0.0.1", broker.port)), pytest.raises(PeerFailed, match="did not start") as raised:
        broker.start()
    assert "Address already in use" in str(raised.value)
    with pytest.raises(PeerFailed, match="does not run"):
        _ = broker.pid
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(tmp_path) in " ".join(command)]


def test_ports_are_free_and_below_the_clients_range() -> None:
    port, ha_port = free_ports()
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", port))
        two.bind(("127.0.0.1", ha_port))
    assert port < 32_768


def test_a_name_server_knows_the_broker_that_registers_with_it(tmp_path: Path) -> None:
    """Of 5.x: every cluster waits for that (`running_cluster`)."""
    with NameServer("4.9.7", tmp_path / "names") as names:
        pid = names.pid
        with Broker("4.9.7", tmp_path / "broker", {"namesrvAddr": names.address}) as broker:
            wait_until(lambda: knows(names, broker), "the broker at the name server")
    assert not psutil.pid_exists(pid)
