from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from sources.rocketmq.session.graceful_close import say_goodbye
from tests.sources.rocketmq.scripted_master import PATIENCE_S, HAScript, ScriptedMaster, SlaveConnection


@pytest.fixture
def talking_to() -> Iterator[Callable[[HAScript], socket.socket]]:
    """A connection to a master with a script."""
    masters: list[ScriptedMaster] = []
    connections: list[socket.socket] = []

    def connect(script: HAScript) -> socket.socket:
        master = ScriptedMaster(script).__enter__()
        masters.append(master)
        connections.append(socket.create_connection((master.address.host, master.address.port)))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()
    for master in masters:
        master.__exit__(None, None, None)


def test_what_is_on_its_way_is_taken_in_until_the_master_ends(talking_to: Callable[[HAScript], socket.socket]) -> None:
    def stream(connection: SlaveConnection) -> None:
        connection.send(bytes(10_000_000))
        connection.await_end()

    assert say_goodbye(talking_to(stream), within_s=PATIENCE_S)


def test_a_reset_is_an_end(talking_to: Callable[[HAScript], socket.socket]) -> None:
    def reset(connection: SlaveConnection) -> None:
        connection.await_end()
        connection.reset()

    assert say_goodbye(talking_to(reset), within_s=PATIENCE_S)


def test_a_reset_behind_the_masters_end_is_an_end() -> None:
    class Reset(socket.socket):
        def shutdown(self, how: int) -> None:
            raise BrokenPipeError

    with Reset() as sock:
        assert say_goodbye(sock, within_s=0.1)


def test_without_the_masters_end_it_has_not_ended(talking_to: Callable[[HAScript], socket.socket]) -> None:
    may_leave = threading.Event()

    def stay(connection: SlaveConnection) -> None:
        may_leave.wait(PATIENCE_S)

    assert not say_goodbye(talking_to(stay), within_s=0.2)
    may_leave.set()


def test_a_master_that_never_stops_streaming_has_not_ended(talking_to: Callable[[HAScript], socket.socket]) -> None:
    may_leave = threading.Event()

    def stream(connection: SlaveConnection) -> None:
        while not may_leave.is_set():
            connection.send(bytes(100_000))

    assert not say_goodbye(talking_to(stream), within_s=0.2)
    may_leave.set()
