"""A master whose name server comes and goes. Real ones: tests/peers/test_slave_of_embedded_master.py."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sources.access.address import Address
from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.embedded.registration import Registration
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import request, send_fields
from tests.sources.rocketmq.embedded.embedded import scenario, settings_for
from tests.sources.rocketmq.scripted_master import ScriptedBroker


def well(request: Command) -> bytes:
    return encode_command(request.response(0))


def well_until_it_leaves(request: Command) -> bytes:
    if request.code == RequestCode.UNREGISTER_BROKER:
        raise ConnectionResetError
    return well(request)


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
        with ScriptedBroker(well, port) as name_server:
            await soon(lambda one=name_server: len(one.requests) >= 3)  # type: ignore[misc]
            assert {request.code for request in name_server.requests} == {103}
        lines = len(caplog.records)
        await soon(lambda lines=lines: len(caplog.records) > lines)  # type: ignore[misc]
    with ScriptedBroker(well_until_it_leaves, port) as name_server:
        await soon(lambda: len(name_server.requests) >= 2)  # the first answer has been heard
        await master.stop()
    assert f"{address} could not be told that this master stops" in caplog.text
    assert "closed by the broker" in caplog.text
    said = [record.getMessage() for record in caplog.records if "registered with" in record.getMessage()]
    assert [line.startswith("not ") for line in said] == [True, False, True, False, True, False]
