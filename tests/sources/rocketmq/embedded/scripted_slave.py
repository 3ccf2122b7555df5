"""A slave that says what the test tells it to, and what the master counts of it."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sources.rocketmq.embedded.master import EmbeddedMaster
from tests.patience import PATIENCE_S, wait_until
from tests.sources.rocketmq.embedded.conversation import conversation


def slaves_of(master: EmbeddedMaster) -> list[dict[str, Any]]:
    """As the master tells them (907)."""
    with conversation(master.address) as talk:
        slaves: list[dict[str, Any]] = json.loads(talk.ask(907)[1])["haConnectionInfo"]
    return slaves


def end_of(master: EmbeddedMaster) -> int:
    with conversation(master.address) as talk:
        return int(json.loads(talk.ask(28)[1])["table"]["commitLogMaxOffset"])


def wait_for_slaves(master: EmbeddedMaster, *acknowledged: int) -> None:
    """Until the slaves connected are as many as given, with these acknowledged offsets."""

    def counted() -> list[int]:
        return sorted(slave["slaveAckOffset"] for slave in slaves_of(master))

    wait_until(lambda: counted() == sorted(acknowledged), lambda: f"{acknowledged}: the master counts {counted()}")


class ScriptedSlave:
    """A connection to the HA port. It does not read what is sent to it until it is asked to."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def report(self, offset: int) -> None:
        self._connection.sendall(struct.pack(">q", offset))

    def follow(self) -> None:
        """Acknowledge a log of one file as it comes, until the connection ends."""
        self.report(0)
        with self._connection.makefile("rb") as stream:
            try:
                while head := stream.read(12):
                    offset, size = struct.unpack(">qi", head)
                    stream.read(size)
                    self.report(offset + size)
            except (ConnectionError, struct.error):
                return


@contextmanager
def scripted_slave(master: EmbeddedMaster) -> Iterator[ScriptedSlave]:
    where = (master.ha_address.host, master.ha_address.port)
    with socket.create_connection(where, timeout=PATIENCE_S) as connection:
        yield ScriptedSlave(connection)


@contextmanager
def following_slave(master: EmbeddedMaster) -> Iterator[None]:
    """A slave that acknowledges at once everything it gets."""
    where = (master.ha_address.host, master.ha_address.port)
    with socket.create_connection(where) as connection:
        follower = threading.Thread(target=ScriptedSlave(connection).follow)
        follower.start()
        try:
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            follower.join()
