"""The master as a whole: started, stopped, started again. As a process: tests/pipeline/test_cli.py."""

import asyncio
import logging
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.system.processes import free_port
from sources.access.address import Address
from sources.errors import ConfigurationError, CorruptRecord
from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.producer.workload import send_workload, workload
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import request, send_fields
from tests.sources.rocketmq.embedded.embedded import end_of, running_master, scenario, settings_for
from tests.sources.rocketmq.scripted_master import ScriptedBroker


def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    """HA-12, HA-16."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for key in ("port", "ha_port"):
            settings = replace(settings_for(tmp_path), **{key: port})
            with pytest.raises(ConfigurationError, match=f"cannot listen at 127.0.0.1:{port}.*a free {key}"):
                asyncio.run(EmbeddedMaster(settings).start())
    with running_master(settings_for(tmp_path)) as master:  # nothing was left open or locked
        assert end_of(master.address) == 0


def test_a_damaged_log_is_a_clear_error_and_the_ports_are_free_again(tmp_path: Path) -> None:
    """HA-15: it starts again on the same ports at once."""
    with running_master(settings_for(tmp_path)) as master:
        send_workload(master.address, workload(3), count=50)
        settings = replace(settings_for(tmp_path), port=master.address.port, ha_port=master.ha_address.port)
    file = tmp_path / "commitlog" / "00000000000000000000"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptRecord, match=str(tmp_path / "commitlog")):
        asyncio.run(EmbeddedMaster(settings).start())
    data[1000] ^= 1
    file.write_bytes(data)
    with running_master(settings) as master:
        assert end_of(master.address) > 0


def test_it_serves_in_one_order_and_ends_in_the_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HA-12, HA-13, MS-21: the log is open before anybody is served; HA-22: each service says its start and its end."""
    caplog.set_level(logging.INFO)
    with running_master(settings_for(tmp_path)) as master:
        slaves, clients = master.ha_address.port, master.address.port
    assert [message for message in caplog.messages if "serving" in message or "the log holds" in message] == [
        f"the log holds 0 to 0 in files of {1024 * 1024} bytes",
        f"serving slaves on port {slaves}",
        f"serving clients on port {clients}",
        "no longer serving clients",
        "no longer serving slaves",
    ]


# a name server that comes and goes; real ones: tests/peers/test_slave_of_embedded_master.py


def well(request: Command) -> bytes:
    return encode_command(request.response(0))


def well_until_it_leaves(request: Command) -> bytes:
    if request.code == RequestCode.UNREGISTER_BROKER:
        raise ConnectionResetError
    return well(request)


@scenario
async def test_a_name_server_that_is_away_hinders_nothing_and_is_found_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line each: away, there, away, there, away, there; and a stop that it is not told of."""
    caplog.set_level(logging.INFO, "sources.rocketmq.embedded.registration")
    port = free_port()
    address = Address("127.0.0.1", port)
    master = EmbeddedMaster(replace(settings_for(tmp_path), name_server=address, register_every_s=0.05))
    await master.start()
    await soon(lambda: "not registered" in caplog.text)
    reader, writer = await asyncio.open_connection(master.address.host, master.address.port)
    writer.write(request(310, send_fields("T1", 0), b"x"))
    await reader.readexactly(4)
    writer.close()
    for away in (2, 3):
        with ScriptedBroker(well, port) as name_server:
            await soon(lambda one=name_server: len(one.requests) >= 3)  # type: ignore[misc]
            assert {request.code for request in name_server.requests} == {103}
        await soon(lambda away=away: caplog.text.count("not registered") == away)  # type: ignore[misc]
    with ScriptedBroker(well_until_it_leaves, port) as name_server:
        await soon(lambda: len(name_server.requests) >= 2)  # the first answer has been heard
        await master.stop()
    assert f"{address} could not be told that this master stops" in caplog.text
    assert "closed by the broker" in caplog.text
    said = [record.getMessage() for record in caplog.records if "registered with" in record.getMessage()]
    assert [line.startswith("not ") for line in said] == [True, False, True, False, True, False]
