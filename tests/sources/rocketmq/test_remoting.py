"""Remoting frames: against section 6 of the RocketMQ notes, and against what real brokers and clients sent."""

import itertools
import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import ProtocolViolation
from sources.rocketmq.wire.remoting import (
    DEFAULT_MAX_FRAME_BYTES,
    LANGUAGES,
    Command,
    FrameBuffer,
    RequestCode,
    ResponseCode,
    Serialization,
    decode_command,
    encode_command,
    loads,
)
from sources.rocketmq.wire.send_header import SendHeader, decode_send_header, encode_send_header
from tests.truth import Fixture

# a response in binary form: code 0, OTHER, version 479, opaque 7, flag 1, remark "ok", ext {"a": "bc"}, body "xyz"
BINARY_HEADER = bytes.fromhex("0000" "07" "01df" "00000007" "00000001" "00000002") + b"ok" + bytes.fromhex(
    "00000009" "0001"
) + b"a" + bytes.fromhex("00000002") + b"bc"  # fmt: skip
BINARY_FRAME = struct.pack(">iI", 4 + len(BINARY_HEADER) + 3, 1 << 24 | len(BINARY_HEADER)) + BINARY_HEADER + b"xyz"
BINARY_COMMAND = Command(
    code=0,
    opaque=7,
    flag=1,
    ext_fields={"a": "bc"},
    remark="ok",
    body=b"xyz",
    serialization=Serialization.ROCKETMQ,
    language="OTHER",
    version=479,
)


def json_frame(header: str, body: bytes = b"") -> bytes:
    data = header.encode()
    return struct.pack(">iI", 4 + len(data) + len(body), len(data)) + data + body


def test_a_binary_header_is_read_and_written_as_specified() -> None:
    assert decode_command(BINARY_FRAME) == BINARY_COMMAND
    assert encode_command(BINARY_COMMAND) == BINARY_FRAME


def test_a_json_header_is_written_as_specified() -> None:
    frame = encode_command(Command(RequestCode.SEND_MESSAGE_V2, opaque=9, ext_fields={"i": "k\x01v\x02"}, body=b"m"))
    length, word = struct.unpack_from(">iI", frame)
    header = frame[8 : 8 + word]

    assert (length, word >> 24, frame[8 + word :]) == (len(frame) - 4, 0, b"m")
    assert b"\\u0001" in header
    assert json.loads(header) == {
        "code": 310,
        "language": "OTHER",
        "version": 0,
        "opaque": 9,
        "flag": 0,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": {"i": "k\x01v\x02"},
    }


def test_a_response_answers_its_request() -> None:
    request = replace(BINARY_COMMAND, code=28, flag=0)
    response = request.response(ResponseCode.SYSTEM_BUSY, remark="later")
    assert (request.is_response, response.is_response) == (False, True)
    assert (response.code, response.opaque, response.remark, response.body) == (2, 7, "later", b"")
    assert response.ext_fields == {}
    assert response.serialization is Serialization.ROCKETMQ


TEXT = st.text(max_size=20)
COMMANDS = st.builds(
    Command,
    code=st.integers(0, 32767),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    ext_fields=st.dictionaries(TEXT, TEXT, max_size=4),
    remark=st.none() | st.text(min_size=1, max_size=20),
    body=st.binary(max_size=50),
    serialization=st.sampled_from(Serialization),
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 32767),
)


@given(commands=st.lists(COMMANDS, max_size=4), cuts=st.lists(st.integers(0, 1000)))
def test_any_commands_survive_any_cut(commands: list[Command], cuts: list[int]) -> None:
    stream = b"".join(encode_command(command) for command in commands)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    buffer = FrameBuffer()
    decoded = [command for left, right in itertools.pairwise(edges) for command in buffer.feed(stream[left:right])]
    assert decoded == commands


@pytest.mark.parametrize("length", [-1, 0, 3, DEFAULT_MAX_FRAME_BYTES - 3, 2**31 - 1])
def test_an_impossible_length_is_refused_with_its_four_bytes(length: int) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        FrameBuffer().feed(struct.pack(">i", length))
    assert caught.value.expected == "a frame of 8 to 16777216 bytes"
    assert caught.value.found == f"a length field of {length}"
    assert FrameBuffer().feed(struct.pack(">i", DEFAULT_MAX_FRAME_BYTES - 4)) == []


BROKEN_FRAMES = {
    "shorter than its head": b"\0\0\0\x04\0\0",
    "length field too large": struct.pack(">iI", 5, 0),
    "header longer than the frame": struct.pack(">iI", 6, 3) + b"{}",
    "unknown serialization": struct.pack(">iI", 6, 2 << 24 | 2) + b"{}",
    "json that is none": json_frame('{"code":'),
    "json of another kind": json_frame("[1]"),
    "json with a number that overflows": json_frame('{"code":1e999}'),
    "json with too many digits": json_frame('{"code":' + "9" * 5000 + "}"),
    "json that nests too deeply": json_frame('{"code":' + "[" * 100_000),
    "json without a code": json_frame('{"opaque":1}'),
    "ext fields that are none": json_frame('{"code":0,"extFields":[1]}'),
    "header that is not UTF-8": struct.pack(">iI", 6, 2) + b"\xff\xfe",
    "binary header cut short": struct.pack(">iI", 4 + 10, 1 << 24 | 10) + BINARY_HEADER[:10],
    "binary remark longer than the header": BINARY_FRAME.replace(b"\0\0\0\x02ok", b"\0\0\x02\0ok"),
    "binary remark of negative length": BINARY_FRAME.replace(b"\0\0\0\x02ok", b"\xff\xff\xff\xffok"),
    "binary ext fields longer than the header": BINARY_FRAME.replace(b"\0\0\0\x09", b"\0\0\0\x0a"),
    "binary ext fields cut short": BINARY_FRAME.replace(b"\0\0\0\x09", b"\0\0\0\x08"),
    "binary text that is not UTF-8": BINARY_FRAME.replace(b"ok", b"\xc3\x28"),
}


@pytest.mark.parametrize("frame", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES.keys())
def test_a_broken_frame_is_a_protocol_violation(frame: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not a frame of RocketMQ's remoting protocol") as caught:
        decode_command(frame)
    assert caught.value.expected is not None
    assert caught.value.found is not None


REAL_REQUESTS = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO,
                 RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
                 RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)  # fmt: skip


@pytest.mark.parametrize("code", REAL_REQUESTS)
def test_a_real_conversation_is_understood(fixture_log: Fixture, code: RequestCode) -> None:
    facts = json.loads(fixture_log.wire("notes.json"))["remoting"][str(int(code))]
    (request,) = FrameBuffer().feed(fixture_log.wire(f"{code}.req.bin"))
    (response,) = FrameBuffer().feed(fixture_log.wire(f"{code}.resp.bin"))
    assert (request.code, request.is_response) == (code, False)
    assert (response.code, response.is_response, response.opaque) == (facts["response_code"], True, request.opaque)
    assert len(response.body) == facts["body_bytes"]
    assert response.language == "JAVA"
    assert response.version == {"4.9.7": 407, "5.5.0": 513}[fixture_log.version]


def test_a_real_brokers_integer_keys_are_read(fixture_log: Fixture) -> None:
    body = decode_command(fixture_log.wire("45.resp.bin")).body
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    offsets = loads(body)["offsetTable"]
    assert {level: offsets[level] for level in ("1", "2", "3", "4")} == {"1": 13, "2": 13, "3": 6, "4": 6}


def unquoted(value: Any) -> str:
    """JSON as fastjson writes it: integer keys of maps without quotes; and with space where a file may have some."""
    if isinstance(value, dict):
        return "{" + " ,".join(f" {json.dumps(key)}\n: {unquoted(item)}" for key, item in value.items()) + "\t}"
    return json.dumps(value)


TRICKY = st.lists(st.sampled_from(["{1:", ",2:", '"', "\\", "}", "x", "\n", "–"]), max_size=8).map("".join)


@given(
    value=st.recursive(
        TRICKY | st.integers() | st.booleans() | st.none(),
        lambda inner: st.dictionaries(TRICKY | st.integers(), inner, max_size=4),
    )
)
def test_what_fastjson_writes_is_read_with_strings_intact(value: Any) -> None:
    def with_text_keys(part: Any) -> Any:
        return {str(key): with_text_keys(item) for key, item in part.items()} if isinstance(part, dict) else part

    assert loads(unquoted(value)) == with_text_keys(value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", '{"a":{1:}'])
def test_a_body_that_is_no_json_is_a_protocol_violation(data: bytes | str) -> None:
    with pytest.raises(ProtocolViolation):
        loads(data)


def test_a_remark_is_text_and_an_unknown_language_another_one() -> None:
    assert decode_command(json_frame('{"code":1,"remark":5}')).remark == "5"
    assert decode_command(json_frame('{"code":1,"remark":null}')).remark is None
    assert decode_command(BINARY_FRAME.replace(b"\x07\x01\xdf", b"\x63\x01\xdf")).language == "OTHER"


# the ext fields of a send: section 6.5


HEADER = SendHeader(
    producer_group="PG",
    topic="T1",
    queue_id=2,
    sys_flag=4,
    born_timestamp_ms=1795253573458,
    flag=-5,
    properties="KEYS\x01k1\x02",
    reconsume_times=1,
    default_topic="TBW102",
    default_topic_queue_nums=4,
    unit_mode=True,
    max_reconsume_times=16,
    batch=False,
    broker_name="b1",
)
LONG = {
    "producerGroup": "PG",
    "topic": "T1",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "2",
    "sysFlag": "4",
    "bornTimestamp": "1795253573458",
    "flag": "-5",
    "properties": "KEYS\x01k1\x02",
    "reconsumeTimes": "1",
    "unitMode": "true",
    "maxReconsumeTimes": "16",
    "batch": "false",
    "brokerName": "b1",
}
SHORT = dict(zip("abcdefghijklmn", LONG.values(), strict=True))


@pytest.mark.parametrize(
    ("code", "fields"),
    [(RequestCode.SEND_MESSAGE, LONG), (RequestCode.SEND_MESSAGE_V2, SHORT), (RequestCode.SEND_BATCH_MESSAGE, SHORT)],
)
def test_request_10_spells_the_names_out_and_the_others_use_letters(code: RequestCode, fields: dict[str, str]) -> None:
    assert encode_send_header(HEADER, code) == fields
    assert decode_send_header(fields, code) == HEADER


def test_what_is_not_given_is_not_sent_and_gets_its_default() -> None:
    least = SendHeader(producer_group="PG", topic="T1")
    assert {"l", "n"}.isdisjoint(encode_send_header(least, RequestCode.SEND_MESSAGE_V2))
    assert decode_send_header({"a": "PG", "b": "T1", "zz": "?"}, RequestCode.SEND_MESSAGE_V2) == least
