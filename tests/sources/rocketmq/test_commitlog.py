import struct
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import BatchItem, Message, decode_items, encode_items
from sources.rocketmq.format.layout import BLANK, V1, V2, Host, Limits
from tests import truth
from tests.sources.rocketmq.records import HELLO_533, LOOPBACK, VECTORS, Vector, hosts, message, messages


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_brokers_record_is_the_message_that_was_sent(vector: Vector) -> None:
    assert commitlog.decode(vector.stored, 0, vector.message.offset) == vector.message
    assert commitlog.encode(vector.message) == vector.stored
    assert vector.message.size == len(vector.stored)
    for size in range(len(vector.stored)):  # nothing until the last byte is there
        assert commitlog.decode(vector.stored[:size], 0, vector.message.offset) is None
        assert commitlog.framed_size(vector.stored[:size], vector.message.offset) is None


@given(messages())
def test_every_message_comes_back(sent: Message) -> None:
    stored = commitlog.encode(sent)
    assert commitlog.decode(stored, 0, sent.offset) == sent
    assert sent.size == len(stored) == struct.unpack_from(">i", stored)[0]


def test_every_record_of_a_broker_comes_back_to_the_byte(fixture_log: truth.Fixture) -> None:
    log, at = fixture_log.log, 0
    for row in fixture_log.rows:
        record = commitlog.decode(log, at, Offset(at))
        assert record is not None
        assert (record.offset, record.size) == (row["physical_offset"], row["size"])
        assert commitlog.encode(record) == log[at : at + record.size]
        at += record.size
    assert at == fixture_log.max_offset


# Where the fields of HELLO_533 are, from the specification; the byte is XORed with `mask`.
@pytest.mark.parametrize(
    ("at", "mask", "problem"),
    [
        (3, 0x01, "not the sum of its parts|does not fit"),
        (0, 0x80, "below the least"),
        (0, 0x40, "exceeds the reader's size limit"),
        (4, 0x01, "no record starts here"),
        (7, 0x01, "no record starts here"),
        (7, 0x0C, "does not fit|not the sum"),  # V1 becomes V2
        (11, 0x01, "its CRC"),
        (8, 0x80, "its CRC"),
        (28, 0x01, "not in its place"),
        (35, 0x01, "not in its place"),
        (39, 0x10, "does not fit|not the sum|its CRC"),  # sys_flag: 20-byte born host
        (39, 0x20, "does not fit|not the sum|its CRC"),  # sys_flag: 20-byte store host
        (84, 0x80, "the body does not fit"),
        (87, 0x01, "topic does not fit|not the sum|its CRC|properties does not fit"),
        (88, 0x01, "its CRC"),
        (92, 0x80, "its CRC"),
        (93, 0x80, "the topic does not fit"),
        (93, 0x01, "the topic does not fit|the properties does not fit|not the sum"),
        (94, 0x80, "the topic is no UTF-8"),
        (96, 0x80, "the properties does not fit"),
        (97, 0x01, "not the sum|does not fit"),
    ],
)
def test_a_flipped_bit_is_seen(at: int, mask: int, problem: str) -> None:
    damaged = bytearray(HELLO_533 + bytes(1000))
    damaged[at] ^= mask
    with pytest.raises(CorruptRecord, match=problem) as caught:
        commitlog.decode(damaged, 0, Offset(0))
    error = caught.value
    assert error.offset == 0
    assert error.expected is not None
    assert error.found is not None
    assert error.hint is not None


@pytest.mark.parametrize(
    ("size", "magic", "expected", "found"),
    [
        (0, 0, "magic 0xDAA320A7", "zeros, so nothing was written"),
        (100, 1, "magic 0xDAA320A7", "magic 0x00000001"),
        (0, V1, "at least 91 bytes", "0 bytes"),
        (90, V1, "at least 91 bytes", "90 bytes"),
        (91, V2, "at least 92 bytes", "91 bytes"),
        (-1, V1, "at least 91 bytes", "-1 bytes"),
        (7, BLANK, "at least 8 bytes", "7 bytes"),
        (1001, V1, "at most 1000 bytes", "1001 bytes"),
        (1001, V2, "at most 1000 bytes", "1001 bytes"),
        (1009, BLANK, "at most 1008 bytes", "1009 bytes"),
    ],
)
def test_a_wrong_head_is_an_error_before_the_rest_has_come(size: int, magic: int, expected: str, found: str) -> None:
    with pytest.raises(CorruptRecord) as caught:
        commitlog.decode(struct.pack(">ii", size, magic), 0, Offset(77), Limits(max_record_bytes=1000))
    assert caught.value.offset == 77
    assert str(caught.value.expected).startswith(expected)
    assert ("max_record_bytes" in str(caught.value)) == expected.startswith("at most")
    assert caught.value.found == found


@pytest.mark.parametrize(("size", "magic"), [(91, V1), (1000, V1), (92, V2), (1000, V2), (8, BLANK), (1008, BLANK)])
def test_heads_at_their_limits(size: int, magic: int) -> None:
    commitlog.check_head(size, magic, Offset(0), Limits(max_record_bytes=1000))


def test_hosts_that_a_record_is_too_small_for() -> None:
    stored = bytearray(commitlog.encode(message(body=b"", topic="", properties=b"")))
    stored[39] = 0x30
    with pytest.raises(CorruptRecord, match="too small for the hosts") as caught:
        commitlog.decode(stored, 0, Offset(0))
    assert (caught.value.expected, caught.value.found) == ("at least 115 bytes", "91 bytes")


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "t" * 128},
        {"properties": bytes(32768)},
        {"queue_id": 2**31},
        {"sys_flag": 0x10},
        {"sys_flag": 0x20},
        {"store_host": Host(bytes(16), 1)},
        {"born_host": Host(LOOPBACK, 2**31)},
        {"born_host": Host(b"", 1)},
    ],
)
def test_what_no_record_can_hold(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"passes its width|names other hosts|an address of"):
        commitlog.encode(message(**changes))


def test_what_a_record_can_just_hold() -> None:
    for sent in (message(topic="t" * 127, properties=bytes(32767)), message(magic=V2, topic="t" * 32767)):
        assert commitlog.decode(commitlog.encode(sent), 0, Offset(0)) == sent


# size, magic, CRC, flag, body length, body, properties length, properties: specification, section 1.7
WIRE = (
    bytes.fromhex("0000001f 00000000 00000000 00000007 00000003") + b"abc" + bytes.fromhex("0006") + b"A\x01b\x02C\x01"
    + bytes.fromhex("00000016 00000000 00000000 ffffffff 00000000 0000")
)  # fmt: skip
ITEMS = [BatchItem(7, b"abc", b"A\x01b\x02C\x01"), BatchItem(-1, b"", b"")]


def test_the_wire_body_of_a_batch() -> None:
    assert decode_items(WIRE) == ITEMS
    assert encode_items(ITEMS) == WIRE
    assert decode_items(b"") == []


def test_a_batch_that_is_cut_off() -> None:
    for size in (size for size in range(1, len(WIRE)) if size != 31):
        with pytest.raises(CorruptRecord) as caught:
            decode_items(WIRE[:size])
        assert caught.value.offset == (0 if size < 31 else 31), size
        assert caught.value.hint is not None, size


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (0, 30, "not the sum of its parts"),
        (0, 32, "not the sum of its parts"),
        (0, -1, "not the sum of its parts"),
        (16, -1, "body does not fit"),
        (16, 2**31 - 1, "body does not fit"),
        (16, 4, "not the sum of its parts"),
    ],
)
def test_wrong_lengths(at: int, value: int, problem: str) -> None:
    with pytest.raises(CorruptRecord, match=problem):
        decode_items(WIRE[:at] + struct.pack(">i", value) + WIRE[at + 4 :])


def test_the_inner_batches_of_a_broker(fixture_550: truth.Fixture) -> None:
    inner = [row for row in fixture_550.rows if row.get("sys_flag", 0) & 0x80]
    assert len(inner) == 4
    for row in inner:
        record = commitlog.decode(fixture_550.log, row["physical_offset"], Offset(row["physical_offset"]))
        assert isinstance(record, commitlog.Message)
        assert len(decode_items(record.body)) == int(row["properties"]["INNER_NUM"])
        assert encode_items(decode_items(record.body)) == record.body


# hosts


# As java.net prints them: InetAddress.getByAddress(ip).getHostAddress().
JAVA = [
    ("7f000001", 10911, "127.0.0.1:10911"),
    ("ffffffff", 0, "255.255.255.255:0"),
    ("00000000000000000000000000000001", 37946, "[0:0:0:0:0:0:0:1]:37946"),
    ("20010db8000000000a0b00c000000fff", 65535, "[2001:db8:0:0:a0b:c0:0:fff]:65535"),
    ("00000000000000000000ffff0a000001", 80, "10.0.0.1:80"),  # mapped IPv4: Java makes an IPv4 address of it
    ("0000000000000000000000000a000001", 80, "[0:0:0:0:0:0:a00:1]:80"),
]


@pytest.mark.parametrize(("ip", "port", "text"), JAVA)
def test_text_and_stored_form(ip: str, port: int, text: str) -> None:
    stored = bytes.fromhex(ip) + port.to_bytes(4, "big")
    host = Host.unpack(stored)
    assert str(host) == text
    assert host.pack() == stored
    assert host.is_ipv6 == (len(ip) == 32)
    assert Host.parse(text, ipv6=len(ip) == 32) == host


@given(st.booleans(), st.data())
def test_every_host_comes_back_from_its_text(ipv6: bool, data: st.DataObject) -> None:
    host = data.draw(hosts(ipv6))
    assert Host.parse(str(host), ipv6=ipv6) == host


@pytest.mark.parametrize(
    ("text", "ipv6"),
    [
        *product(
            ("", "127.0.0.1", "broker:10911", "1.2.3:1", "1.2.3.256:1", "1..3.4:1", "[0:0:0:0:0:0:0:1]:1"), [False]
        ),
        *product(("1.2.3.4.5:1", "[::1]:1", "[0:0:0:0:0:0:0:10000]:1"), [True]),
    ],
)
def test_text_that_is_no_host(text: str, ipv6: bool) -> None:
    with pytest.raises(ValueError, match=r"."):
        Host.parse(text, ipv6=ipv6)
