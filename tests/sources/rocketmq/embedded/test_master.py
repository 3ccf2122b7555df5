"""The master as a whole: started, stopped, started again. As a process: tests/pipeline/test_cli.py."""

import asyncio
import errno
import json
import logging
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.system.processes import free_port
from sources.access.address import Address
from sources.errors import ConfigurationError, CorruptRecord
from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.embedded.remoting_service import RemotingService
from sources.rocketmq.format.layout import Host
from sources.rocketmq.producer.workload import send_workload, workload
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from tests import truth
from tests.patience import soon
from tests.sources.rocketmq.embedded.conversation import (
    Conversation,
    batch_item,
    conversation,
    heard,
    lenient_json,
    request,
    send_fields,
    split,
)
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


@scenario
async def test_a_disk_that_fails_stops_the_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsync could not write may be lost, and a second attempt would not say so."""
    master = EmbeddedMaster(replace(settings_for(tmp_path), flush_interval_ms=10))
    serving = asyncio.Event()
    running = asyncio.create_task(master.run_until_signal(serving.set))
    async with asyncio.timeout(60):
        await serving.wait()
        monkeypatch.setattr(os, "fdatasync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match="Input/output error"):
            await asyncio.gather(running, asyncio.to_thread(send_workload, master.address, workload(1), count=1))


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


# conversations with a running master: refusals, and its answers about itself beside a real broker's


@pytest.fixture
def master(tmp_path: Path) -> Iterator[EmbeddedMaster]:
    with running_master(settings_for(tmp_path)) as master:
        yield master


@pytest.fixture
def talk(master: EmbeddedMaster) -> Iterator[Conversation]:
    with conversation(master.address) as talk:
        yield talk


def runtime_info(talk: Conversation) -> dict[str, str]:
    table: dict[str, str] = json.loads(talk.ask(28)[1])["table"]
    return table


@pytest.mark.parametrize(
    ("fields", "body", "code", "why"),
    [
        (send_fields("T1", 0), b"x" * (1024 * 1024), 13, "allowed"),
        (send_fields("T1", 0, "k\x01" + "v" * 32800), b"x", 13, "properties"),
        (send_fields("T1", 0, "k\x01\ud800"), b"x", 13, "no text"),
        (send_fields("no/topic", 0), b"x", 29, "characters"),
        (send_fields("t" * 128, 0), b"x", 29, "127"),
        (send_fields("", 0), b"x", 29, "empty"),
        (send_fields("TBW102", 0), b"x", 16, "forbidden"),
        (send_fields("T1", 0, d="0"), b"x", 17, "exist"),
        (send_fields("T1", 4), b"x", 1, "queue 4 does not exist: topic T1 has 4"),
        (send_fields("T1", 0, f="4"), b"x", 16, "transactions"),
        (send_fields("T1", 0, f="192"), b"x", 13, "inner batches"),
        (send_fields("T1", 0, "TRAN_MSG\x01true\x02"), b"x", 13, "TRAN_MSG"),
        (send_fields("T1", 0, "a\x01b\x02DELAY\x013\x02"), b"x", 13, "DELAY"),
        (send_fields("T1", 0, "TIMER_DELAY_SEC\x0130"), b"x", 13, "TIMER_DELAY_SEC"),
        (send_fields("T1", 0, e="zero"), b"x", 1, "send request"),
        ({"b": "T1"}, b"x", 1, "send request"),
        (send_fields("T1", 0, m="true"), b"", 13, "empty"),
        (send_fields("T1", 0, m="true"), b"\0\0\0\x17", 13, "batch item"),
        (send_fields("T1", 0, m="true"), batch_item(bytes(600_000)) * 2, 13, "batch has"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_reason(
    talk: Conversation, fields: dict[str, str], body: bytes, code: int, why: str
) -> None:
    header, _ = talk.ask(310, fields, body)
    assert (header["code"], why in header["remark"]) == (code, True), header
    assert runtime_info(talk)["commitLogMaxOffset"] == "0"
    assert talk.ask(310, send_fields("T1", 0), b"next")[0]["code"] == 0


@pytest.mark.parametrize("garbage", [b"\x7f\xff\xff\xff", b"\0\0\0\x08\0\0\0\x04oops", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_frame_ends_that_connection_only(talk: Conversation, master: EmbeddedMaster, garbage: bytes) -> None:
    with conversation(master.address) as other:
        other.say(garbage)
        assert other.is_closed()
    assert talk.ask(28)[0]["code"] == 0


def test_unknown_requests_get_code_3_and_one_way_requests_and_stray_responses_nothing(talk: Conversation) -> None:
    talk.say(request(9999, opaque=3, flag=2))
    talk.say(request(0, opaque=4, flag=1))
    header, _ = talk.ask(9999, opaque=5)
    assert (header["code"], header["opaque"]) == (3, 5)


def test_a_metadata_file_of_the_store_is_answered_as_it_is(talk: Conversation, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T1@g":{0:7}}}')
    assert talk.ask(43)[1] == b'{"offsetTable":{"T1@g":{0:7}}}'


def test_the_ha_address_can_be_asked(talk: Conversation, master: EmbeddedMaster) -> None:
    assert talk.ask(906)[0]["extFields"] == {
        "masterAddress": str(master.address), "masterHaAddress": str(master.ha_address), "masterFlushOffset": "0",
    }  # fmt: skip


def names_in(value: Any) -> Any:
    """The names of an answer, at all depths, without the values; of a list what its first item has."""
    if isinstance(value, dict):
        return {name: names_in(inner) for name, inner in value.items()}
    return [names_in(inner) for inner in value[:1]] if isinstance(value, list) else None


def golden(fixture: truth.Fixture, talk: Conversation, name: str) -> tuple[Any, Any]:
    """What a real broker answered to a captured request, and what the master answers to the same bytes."""
    talk.say(fixture.wire(f"{name}.req.bin"))
    (header, body), (real_header, real_body) = talk.hear(), split(fixture.wire(f"{name}.resp.bin"))
    assert [header[key] for key in ("code", "opaque", "flag")] == [
        real_header[key] for key in ("code", "opaque", "flag")
    ]
    return lenient_json(real_body), lenient_json(body)


def test_slaves_are_told_as_a_real_broker_tells_them(
    talk: Conversation, master: EmbeddedMaster, fixture_550: truth.Fixture
) -> None:
    """HA-68."""
    real, ours = golden(fixture_550, talk, "907")
    assert names_in(ours) == names_in(real)
    talk.ask(310, send_fields("T1", 0), b"x" * 1000)
    end = int(runtime_info(talk)["commitLogMaxOffset"])
    with conversation(master.ha_address) as slave:
        slave.connection.sendall(struct.pack(">q", 1))
        slave.connection.recv(12)  # it has been heard
        real, ours = golden(fixture_550, talk, "907-with-slave")
    assert names_in(ours) == names_in(real)
    (status,) = ours["haConnectionInfo"]
    assert (status["slaveAckOffset"], status["diff"], status["inSync"]) == (1, end - 1, True)
    assert (ours["masterCommitLogMaxOffset"], ours["inSyncSlaveNums"], ours["master"]) == (end, 1, True)


@scenario
async def test_a_failure_is_told_and_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    """HA-31: an exception ends one wait, and later requests are served."""
    waiting: dict[int, asyncio.Future[str]] = {}

    async def later(request: Command, _sender: Host) -> Command:
        waiting[request.opaque] = answer = asyncio.get_running_loop().create_future()
        return request.response(0, remark=await answer)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    remoting = RemotingService({2: later}, lambda: None)
    await remoting.start(listener)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"".join(request(2, opaque=opaque) for opaque in (1, 2, 3)))
        await soon(lambda: len(waiting) == 3)
        waiting[1].set_exception(ValueError("something broke"))
        headers = []
        for _ in range(2):
            async with asyncio.timeout(60):
                headers.append((await heard(reader))[0])
            if not waiting[2].done():
                waiting[2].set_result("well")
        writer.close()
        await soon(waiting[3].cancelled)  # its client has gone
    finally:
        writer.close()
        await remoting.stop()
    assert [(header["opaque"], header["code"]) for header in headers] == [(1, 1), (2, 0)]
    assert "something broke" in headers[0]["remark"]
    assert headers[1]["remark"] == "well"
    assert "request 2 of 127.0.0.1" in caplog.text
