"""A master registers with a name server that the test plays: frames taken apart by hand."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sources.access.address import Address
from sources.rocketmq.embedded.master import EmbeddedMaster, MasterSettings
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import request, send_fields, split
from tests.sources.rocketmq.embedded.embedded import settings_for
from tests.sources.rocketmq.embedded.scenarios import scenario

SOON_S = 0.05
OFTEN: dict[str, Any] = {"register_every_s": SOON_S}


@dataclass
class NameServer:
    """Takes registrations, and says that each is well."""

    requests: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                head = await reader.readexactly(4)
                header, body = split(head + await reader.readexactly(int.from_bytes(head, "big")))
                self.requests.append((header, body))
                answer = {"code": 0, "flag": 1, "language": "JAVA", "opaque": header["opaque"], "version": 1}
                text = json.dumps(answer).encode()
                writer.write(struct.pack(">iI", 4 + len(text), len(text)) + text)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def hang_up(self) -> None:
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()

    @property
    def codes(self) -> list[int]:
        return [header["code"] for header, _ in self.requests]


@asynccontextmanager
async def name_server(port: int = 0) -> AsyncIterator[tuple[NameServer, Address]]:
    names = NameServer()
    server = await asyncio.start_server(names.serve, "127.0.0.1", port)
    try:
        yield names, Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        names.hang_up()
        await server.wait_closed()


@asynccontextmanager
async def running(store: Path, address: Address, **changes: Any) -> AsyncIterator[EmbeddedMaster]:
    settings: MasterSettings = replace(settings_for(store), broker_name="b1", cluster_name="c1", name_server=address)
    master = EmbeddedMaster(replace(settings, **changes))
    await master.start()
    try:
        yield master
    finally:
        await master.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@scenario
async def test_it_registers_at_the_start_and_unregisters_at_the_stop(tmp_path: Path) -> None:
    """Header and body as RegisterBrokerRequestHeader and RegisterBrokerBody have them."""
    async with name_server() as (names, address):
        async with running(tmp_path, address) as master:
            await soon(lambda: names.codes == [103])
            where = {
                "brokerName": "b1", "clusterName": "c1", "brokerId": "0", "brokerAddr": str(master.address),
            }  # fmt: skip
        (register, body), (unregister, nothing) = names.requests
        fields = register["extFields"]
        crc = str(zlib.crc32(body) & 0x7FFFFFFF)
        rest = {"haServerAddr": str(master.ha_address), "bodyCrc32": crc, "compressed": "false"}
        assert fields == where | rest
        assert register["version"] >= 37  # below V3_0_11 the body would be another one
        said = json.loads(body)
        assert said["filterServerList"] == []
        assert set(said["topicConfigSerializeWrapper"]) >= {"dataVersion", "topicConfigTable"}
        assert (unregister["code"], unregister["extFields"], nothing) == (104, where, b"")
        assert len(names.connections) == 1  # a name server forgets a broker whose connection ends


@scenario
async def test_a_name_server_that_is_away_hinders_nothing_and_is_found_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change of state is one line: away, there, away, there."""
    caplog.set_level(logging.INFO, "sources.rocketmq.embedded.registration")
    port = free_port()
    async with running(tmp_path, Address("127.0.0.1", port), **OFTEN) as master:
        await soon(lambda: "not registered" in caplog.text)
        reader, writer = await asyncio.open_connection(master.address.host, master.address.port)
        writer.write(request(310, send_fields("T1", 0), b"x"))
        await reader.readexactly(4)
        writer.close()
        for _ in range(2):
            async with name_server(port) as (names, _):
                await soon(lambda names=names: len(names.requests) >= 3)  # type: ignore[misc]
            lines = len(caplog.records)
            await soon(lambda lines=lines: len(caplog.records) > lines)  # type: ignore[misc]
    said = [record.getMessage() for record in caplog.records if "registered with" in record.getMessage()]
    assert [line.startswith("not ") for line in said] == [True, False, True, False, True]
