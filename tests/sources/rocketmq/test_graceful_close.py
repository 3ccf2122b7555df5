from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sources.rocketmq.session.graceful_close import say_goodbye
from tests.sources.rocketmq.scripted_master import PATIENCE_S, HAScript, ScriptedMaster, SlaveConnection


@contextmanager
def talking_to(script: HAScript) -> Iterator[socket.socket]:
    with ScriptedMaster(script) as master, socket.create_connection((master.address.host, master.address.port)) as sock:
        yield sock


@pytest.mark.parametrize("size", [0, 100_000], ids=["silent", "never stops streaming"])
def test_without_the_masters_end_it_has_not_ended(size: int) -> None:
    may_leave = threading.Event()

    def stay(connection: SlaveConnection) -> None:
        while not may_leave.is_set():
            connection.send(bytes(size))
            may_leave.wait(0 if size else PATIENCE_S)

    with talking_to(stay) as sock:
        assert not say_goodbye(sock, within_s=0.2)
        may_leave.set()
