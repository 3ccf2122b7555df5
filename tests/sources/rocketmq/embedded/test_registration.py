"""A master whose name server comes and goes. Real ones: tests/peers/test_slave_of_embedded_master.py."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sources.access.address import Address
from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.embedded.registration import Registration
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import heard, request, send_fields
from tests.sources.rocketmq.embedded.embedded import scenario, settings_for


@asynccontextmanager
async def name_server(port: int, *, leaves_at: int | None = None) -> AsyncIterator[list[int]]:
    """Says to each request that it is well, until one of code `leaves_at`; gives the codes of all."""
    codes: list[int] = []
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header, _ = await heard(reader)
                codes.append(header["code"])
                if header["code"] == leaves_at:
                    writer.close()
                    return
                answer = {"code": 0, "flag": 1, "language": "JAVA", "opaque": header["opaque"], "version": 1}
                text = json.dumps(answer).encode()
                writer.write(struct.pack(">iI", 4 + len(text), len(text)) + text)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield codes
    finally:
        server.close()
        for writer in connections:
            writer.transport.abort()
        await server.wait_closed()


@scenario
async def test_a_master_that_never_registered_has_nothing_to_take_back() -> None:
    here = Address("127.0.0.1", 1)
    await Registration(here, dict, broker_name="b", cluster_name="c", address=here, ha_address=here, every_s=1).stop()


@scenario
async def test_a_name_server_that_is_away_hinders_nothing_and_is_found_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line each: away, there, away, there, away, there; and a stop that it is not told of."""
    caplog.set_level(logging.INFO, "sources.rocketmq.embedded.registration")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    address = Address("127.0.0.1", port)
    master = EmbeddedMaster(replace(settings_for(tmp_path), name_server=address, register_every_s=0.05))
    await master.start()
    await soon(lambda: "not registered" in caplog.text)
    reader, writer = await asyncio.open_connection(master.address.host, master.address.port)
    writer.write(request(310, send_fields("T1", 0), b"x"))
    await reader.readexactly(4)
    writer.close()
    for _ in range(2):
        async with name_server(port) as codes:
            await soon(lambda codes=codes: len(codes) >= 3)  # type: ignore[misc]
            assert set(codes) == {103}
        lines = len(caplog.records)
        await soon(lambda lines=lines: len(caplog.records) > lines)  # type: ignore[misc]
    async with name_server(port, leaves_at=104) as codes:
        await soon(lambda: len(codes) >= 2)  # the first answer has been heard
        await master.stop()
    assert f"{address} could not be told that this master stops" in caplog.text
    assert "closed by the broker" in caplog.text
    said = [record.getMessage() for record in caplog.records if "registered with" in record.getMessage()]
    assert [line.startswith("not ") for line in said] == [True, False, True, False, True, False]
