"""Conversations with a running master: sends, refusals, and its answers about itself beside a real broker's."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.format import properties
from sources.rocketmq.format.commitlog import Message
from tests import truth
from tests.sources.rocketmq.embedded.conversation import (
    Conversation,
    batch_item,
    conversation,
    lenient_json,
    request,
    send_fields,
    split,
)
from tests.sources.rocketmq.embedded.embedded import running_master, settings_for
from tests.sources.rocketmq.embedded.stores import messages_of


@pytest.fixture
def master(tmp_path: Path) -> Iterator[EmbeddedMaster]:
    with running_master(settings_for(tmp_path)) as master:
        yield master


@pytest.fixture
def talk(master: EmbeddedMaster) -> Iterator[Conversation]:
    with conversation(master.address) as talk:
        yield talk


def stored(talk: Conversation, root: Path) -> list[Message]:
    """Every message in the log."""
    return messages_of(root, int(runtime_info(talk)["commitLogMaxOffset"]))


def runtime_info(talk: Conversation) -> dict[str, str]:
    table: dict[str, str] = json.loads(talk.ask(28)[1])["table"]
    return table


def test_a_message_is_stored_and_its_place_is_told(talk: Conversation, master: EmbeddedMaster, tmp_path: Path) -> None:
    header, body = talk.ask(
        310, send_fields("T1", 2, "KEYS\x01k1 k2\x02TAGS\x01tagA", h="7", j="3"), b"hello", opaque=77
    )
    assert (header["code"], header["opaque"], header["flag"] & 1, body) == (0, 77, 1, b"")
    fields = header["extFields"]
    assert (fields["queueId"], fields["queueOffset"]) == ("2", "0")
    assert fields["msgId"] == f"7F000001{master.address.port:08X}{0:016X}"
    (message,) = stored(talk, tmp_path)
    assert (message.topic, message.queue_id, message.body) == ("T1", 2, b"hello")
    assert (message.flag, message.reconsume_times, message.born_timestamp_ms) == (7, 3, 1_795_000_000_000)
    assert str(message.store_host) == str(master.address)
    assert str(message.born_host) == "{}:{}".format(*talk.connection.getsockname())
    assert message.properties.startswith(b"KEYS\x01k1 k2\x02TAGS\x01tagA\x02")
    assert message.properties.endswith(b"\x02")
    found = properties.decode(message.properties)
    unique_key = found.pop("UNIQ_KEY")
    assert unique_key.startswith("7F000001")
    assert len(unique_key) == 32
    assert found == {
        "KEYS": "k1 k2", "TAGS": "tagA", "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip


def test_a_clients_unique_key_is_kept(talk: Conversation, tmp_path: Path) -> None:
    talk.ask(310, send_fields("T1", 0, "UNIQ_KEY\x01mine\x02"), b"x")
    (message,) = stored(talk, tmp_path)
    assert message.properties.count(b"UNIQ_KEY") == 1
    assert properties.decode(message.properties)["UNIQ_KEY"] == "mine"


def test_the_old_send_request_has_long_names(talk: Conversation, tmp_path: Path) -> None:
    fields = {
        "producerGroup": "pg", "topic": "T1", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "3",
        "sysFlag": "1", "bornTimestamp": "5", "flag": "6", "properties": "a\x01b\x02", "reconsumeTimes": "0",
    }  # fmt: skip
    header, _ = talk.ask(10, fields, zlib.compress(b"z" * 5000))
    assert header["code"] == 0
    (message,) = stored(talk, tmp_path)
    assert (message.queue_id, message.sys_flag, message.flag, message.born_timestamp_ms) == (3, 1, 6, 5)
    assert zlib.decompress(message.body) == b"z" * 5000


def test_a_batch_becomes_ordinary_messages(talk: Conversation, master: EmbeddedMaster, tmp_path: Path) -> None:
    """As section 1.7 says: own properties, a separator if they lack it, then the batch's."""
    items = [(b"", b"KEYS\x01e1\x02TAGS\x01empty\x02", 1), (b"x", b"KEYS\x01no-sep", 2), (b"yy", b"", 3)]
    talk.ask(310, send_fields("T1", 1), b"first")
    fields = send_fields("T1", 1, "UNIQ_KEY\x01of-the-batch\x02WAIT\x01false", m="true")
    header, _ = talk.ask(320, fields, b"".join(batch_item(body, block, flag) for body, block, flag in items))
    assert (header["code"], header["extFields"]["queueOffset"]) == (0, "1")
    messages = stored(talk, tmp_path)[1:]
    prefix = f"7F000001{master.address.port:08X}"
    assert header["extFields"]["msgId"] == ",".join(f"{prefix}{message.offset:016X}" for message in messages)
    assert [(m.body, m.flag, m.queue_offset) for m in messages] == [(b"", 1, 1), (b"x", 2, 2), (b"yy", 3, 3)]
    assert len({m.store_timestamp_ms for m in messages}) == 1
    common = b"UNIQ_KEY\x01of-the-batch\x02WAIT\x01false\x02"
    assert [m.properties.partition(common)[0] for m in messages] == [items[0][1], items[1][1] + b"\x02", b""]


def test_messages_of_a_batch_without_unique_keys_get_one_each(talk: Conversation, tmp_path: Path) -> None:
    talk.ask(
        320,
        send_fields("T1", 1, m="true"),
        batch_item(b"a") + batch_item(b"b", b"UNIQ_KEY\x01own\x02") + batch_item(b"c"),
    )
    keys = [properties.decode(message.properties)["UNIQ_KEY"] for message in stored(talk, tmp_path)]
    assert keys[1] == "own"
    assert len(set(keys)) == 3


def test_without_a_queue_the_queues_take_turns(talk: Conversation) -> None:
    queues = [talk.ask(310, send_fields("T1", -1), b"x")[0]["extFields"]["queueId"] for _ in range(6)]
    assert queues == ["0", "1", "2", "3", "0", "1"]


@pytest.mark.parametrize(("wanted", "created"), [("1", 1), ("8", 8), ("16", 8)])
def test_an_unknown_topic_is_created_with_at_most_8_queues(talk: Conversation, wanted: str, created: int) -> None:
    assert talk.ask(310, send_fields("T1", 0, d=wanted), b"x")[0]["code"] == 0
    config = json.loads(talk.ask(21)[1])["topicConfigTable"]["T1"]
    assert (config["readQueueNums"], config["writeQueueNums"], config["perm"]) == (created, created, 6)
    assert talk.ask(310, send_fields("T1", created), b"x")[0]["code"] == 1
    assert talk.ask(310, send_fields("T1", created - 1), b"x")[0]["code"] == 0


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


def test_a_disk_that_cannot_be_written_is_told_to_the_producer(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert talk.ask(310, send_fields("T1", 0), b"kept")[0]["code"] == 0
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", full)
        header, _ = talk.ask(310, send_fields("T1", 0), b"lost")
    assert (header["code"], "No space left" in header["remark"]) == (14, True)
    assert talk.ask(310, send_fields("T1", 0), b"kept too")[0]["extFields"]["queueOffset"] == "1"
    assert [message.body for message in stored(talk, tmp_path)] == [b"kept", b"kept too"]


def test_long_retry_topics_are_taken(talk: Conversation, tmp_path: Path) -> None:
    """As by a real 5.5.0: they are where records of the second form come from."""
    topic = "%RETRY%cg_" + "long" * 45
    assert talk.ask(310, send_fields(topic, 0), b"x")[0]["code"] == 0
    (message,) = stored(talk, tmp_path)
    assert (message.topic, message.magic & 0xFFFFFFFF) == (topic, 0xDAA320AB)


def test_unknown_requests_get_code_3(talk: Conversation) -> None:
    header, _ = talk.ask(9999, opaque=5)
    assert (header["code"], header["opaque"]) == (3, 5)


def test_one_way_requests_have_no_answer_and_stray_responses_neither(talk: Conversation, tmp_path: Path) -> None:
    talk.say(request(310, send_fields("T1", 0), b"one way", opaque=1, flag=2))
    talk.say(request(0, opaque=2, flag=1))
    talk.say(request(9999, opaque=3, flag=2))
    assert talk.ask(28, opaque=4)[0]["opaque"] == 4
    assert [message.body for message in stored(talk, tmp_path)] == [b"one way"]


def test_pipelined_requests_are_answered_in_order(talk: Conversation) -> None:
    frames = [request(310, send_fields("T1", 0), bytes(n), opaque=n) for n in range(300)]
    talk.say(b"".join(frames))
    answers = [talk.hear()[0] for _ in frames]
    assert [(a["opaque"], a["extFields"]["queueOffset"]) for a in answers] == [(n, str(n)) for n in range(300)]


def test_requests_may_come_byte_by_byte(talk: Conversation) -> None:
    for byte in request(310, send_fields("T1", 0), b"x"):
        talk.say(bytes((byte,)))
    assert talk.hear()[0]["code"] == 0


def test_a_binary_header_is_answered_by_a_binary_header(talk: Conversation) -> None:
    pairs = send_fields("T1", 1, "TAGS\x01t\x02").items()
    ext = b"".join(struct.pack(">h", len(k)) + k.encode() + struct.pack(">i", len(v)) + v.encode() for k, v in pairs)
    header = struct.pack(">hbhiii", 310, 3, 0, 4711, 0, 0) + struct.pack(">i", len(ext)) + ext
    talk.say(struct.pack(">iI", 4 + len(header) + 1, len(header) | 1 << 24) + header + b"x")
    answer = talk.hear_raw()
    assert answer[4] == 1
    code, _language, _version, opaque, flag, remark = struct.unpack_from(">hbhiii", answer, 8)
    assert (code, opaque, flag, remark) == (0, 4711, 1, 0)
    assert b"\x00\x07queueId\x00\x00\x00\x011" in answer


@pytest.mark.parametrize(
    "garbage", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x08\x00\x00\x00\x04oops", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_frame_ends_that_connection_only(talk: Conversation, master: EmbeddedMaster, garbage: bytes) -> None:
    with conversation(master.address) as other:
        other.say(garbage)
        assert other.is_closed()
    assert talk.ask(28)[0]["code"] == 0


def test_the_range_of_the_log_is_told_as_a_broker_tells_it(talk: Conversation, tmp_path: Path) -> None:
    empty = runtime_info(talk)
    assert (empty["commitLogMinOffset"], empty["commitLogMaxOffset"]) == ("-1", "0")
    talk.ask(310, send_fields("T1", 0), b"x" * 100)
    info = runtime_info(talk)
    (message,) = stored(talk, tmp_path)
    assert (info["commitLogMinOffset"], info["commitLogMaxOffset"]) == ("0", str(message.size))
    assert (info["putMessageTimesTotal"], info["putMessageSizeTotal"]) == ("1", str(message.size))
    assert info["earliestMessageTimeStamp"] == str(message.store_timestamp_ms)


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


def test_runtime_info_uses_names_of_a_real_broker(talk: Conversation, fixture_550: truth.Fixture) -> None:
    real, ours = golden(fixture_550, talk, "28")
    assert list(ours) == list(real) == ["table"]
    assert set(ours["table"]) <= set(real["table"])
    assert {type(value) for value in ours["table"].values()} == {str}


def test_topics_have_the_shape_of_a_real_broker(talk: Conversation, fixture_550: truth.Fixture) -> None:
    talk.ask(310, send_fields("orders", 0), b"x")
    real, ours = golden(fixture_550, talk, "21")
    assert set(ours) == set(real)
    assert names_in(ours["topicConfigTable"]["orders"]) == names_in(real["topicConfigTable"]["orders"])
    assert names_in(ours["dataVersion"]) == names_in(real["dataVersion"])
    assert ours["topicConfigTable"]["orders"] == real["topicConfigTable"]["orders"]


def test_without_consumers_the_metadata_is_empty_and_of_the_right_shape(
    talk: Conversation, fixture_497: truth.Fixture
) -> None:
    for name in ("43", "45", "201"):
        real, ours = golden(fixture_497, talk, name)
        table = "subscriptionGroupTable" if name == "201" else "offsetTable"
        assert set(real) <= set(ours)
        assert ours[table] == {}


def test_metadata_of_a_real_brokers_store_is_served(fixture_log: truth.Fixture, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(fixture_log.path, store, ignore=shutil.ignore_patterns("*consumequeue*", "index", "wire"))
    with running_master(settings_for(store)) as master, conversation(master.address) as talk:
        for name, file in (("43", "consumerOffset"), ("45", "delayOffset"), ("201", "subscriptionGroup")):
            real, ours = golden(fixture_log, talk, name)
            assert ours == lenient_json((store / "config" / f"{file}.json").read_bytes())
            assert set(ours) == set(real)
        topics = lenient_json((fixture_log.path / "config" / "topics.json").read_bytes())["topicConfigTable"]
        _, ours = golden(fixture_log, talk, "21")
        for name, topic in topics.items():
            assert ours["topicConfigTable"][name] == {"attributes": {}} | topic
        assert runtime_info(talk)["commitLogMaxOffset"] == str(fixture_log.max_offset)


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


def test_the_ha_address_can_be_asked(talk: Conversation, master: EmbeddedMaster) -> None:
    fields = talk.ask(906)[0]["extFields"]
    assert (fields["masterAddress"], fields["masterHaAddress"]) == (str(master.address), str(master.ha_address))
    assert int(fields["masterFlushOffset"]) == 0


def test_the_configuration_can_be_asked(talk: Conversation, master: EmbeddedMaster, tmp_path: Path) -> None:
    lines = dict(line.split("=", 1) for line in talk.ask(26)[1].decode().splitlines())
    assert lines["brokerName"] == "embedded"
    assert lines["brokerRole"] == "ASYNC_MASTER"
    assert lines["mappedFileSizeCommitLog"] == str(1024 * 1024)
    assert (lines["listenPort"], lines["haListenPort"]) == (str(master.address.port), str(master.ha_address.port))
    assert lines["storePathCommitLog"] == str(tmp_path / "commitlog")


def test_a_slave_of_5_is_told_that_there_are_no_timers_and_request_modes(talk: Conversation) -> None:
    """Names as in MessageRequestModeSerializeWrapper, TimerMetricsSerializeWrapper, TimerCheckpoint (7 i64)."""
    assert json.loads(talk.ask(402)[1]) == {"messageRequestModeMap": {}}
    metrics = json.loads(talk.ask(61)[1])
    assert metrics == {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "timingCount": {}}
    header, checkpoint = talk.ask(60)
    assert (header["code"], checkpoint) == (0, bytes(56))


def test_consumer_offsets_have_a_version(talk: Conversation) -> None:
    """A 5.5.0 slave fails on an answer without; 4.9.7 ignores it."""
    assert json.loads(talk.ask(43)[1]) == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "offsetTable": {},
    }


def test_timers_and_request_modes_of_a_real_brokers_store_are_served(tmp_path: Path) -> None:
    files = {
        61: ("timermetrics", b'{"timingCount":{"orders":{"count":3,"timeStamp":5}}}'),
        402: ("messageRequestMode.json", b'{"messageRequestModeMap":{"orders":{}}}'),
        60: ("timercheck", bytes(range(56)) + bytes(4096 - 56)),  # a page is mapped, its first 56 bytes are used
    }
    (tmp_path / "config").mkdir()
    for name, content in files.values():
        (tmp_path / "config" / name).write_bytes(content)
    with running_master(settings_for(tmp_path)) as master, conversation(master.address) as talk:
        assert {code: talk.ask(code)[1] for code in files} == {
            61: files[61][1],
            402: files[402][1],
            60: bytes(range(56)),
        }
