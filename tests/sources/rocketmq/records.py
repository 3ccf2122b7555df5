"""Records for tests: literal ones from real brokers, and strategies that make any."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.commitlog import Blank, Message
from sources.rocketmq.format.layout import V1, V2, Host

LOOPBACK = bytes((127, 0, 0, 1))

# Test vectors made by real brokers: topic T1, born on 127.0.0.1. The values beside the bytes were read off by hand.
HELLO_533 = bytes.fromhex(
    "000000e5daa320a73610a68600000000000000000000000000000000000000000000000000000000000001a1fd7397357f0000010000ed9c"
    "000001a1fd7397737f000001000051af0000000000000000000000000000000568656c6c6f02543100834d53475f524547494f4e01446566"
    "61756c74526567696f6e02554e49515f4b455901374630303030303130303031414141413030303030303030303030303030303102434c55"
    "535445520143310254414753017461674102666f6f01626172024b455953016b31206b32025741495401747275650254524143455f4f4e01"
    "7472756502"
)
HELLO_497 = bytes.fromhex(
    "000000b3daa320a73610a68600000000000000000000000000000000000000000000000000000000000001a1fd76ccb27f0000010000a09e"
    "000001a1fd76cccb7f000001000078bf0000000000000000000000000000000568656c6c6f02543100514b455953016b31206b3202666f6f"
    "0162617202554e49515f4b455901374630303030303130303031414141413030303030303030303030303030303102434c55535445520143"
    "3102544147530174616741"
)
BATCH_ITEM_533 = bytes.fromhex(
    "000000ecdaa320a747cc1be00000000100000000000000000000000000000000000004c900000000000001a1fd7397b67f0000010000ed9c"
    "000001a1fd7397b77f000001000051af000000000000000000000000000000026231025431008d54414753017802554e49515f4b45590137"
    "46303030303031303030314141414130303030303030303030303030303036024d53475f524547494f4e0144656661756c74526567696f6e"
    "02554e49515f4b455901374630303030303130303031414141413030303030303030303030303030303802434c5553544552014331025452"
    "4143455f4f4e017472756502"
)


@dataclass(frozen=True)
class Vector:
    name: str
    stored: bytes
    message: Message


def message(**changes: Any) -> Message:
    """A small V1 message at offset 0; its CRC follows its body unless given."""
    plain = Message(
        magic=V1,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        offset=Offset(0),
        sys_flag=0,
        born_timestamp_ms=1_795_000_000_000,
        born_host=Host(LOOPBACK, 60828),
        store_timestamp_ms=1_795_000_000_001,
        store_host=Host(LOOPBACK, 20911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"hello",
        topic="T1",
        properties=b"",
    )
    changed = dataclasses.replace(plain, **changes)
    return changed if "body_crc" in changes else dataclasses.replace(changed, body_crc=body_crc(changed.body))


VECTORS = (
    Vector(
        "first record of a 5.3.3 broker",
        HELLO_533,
        message(
            body_crc=0x3610A686,
            born_timestamp_ms=0x1A1FD739735,
            store_timestamp_ms=0x1A1FD739773,
            properties=b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x017F0000010001AAAA0000000000000001\x02CLUSTER\x01C1\x02"
            b"TAGS\x01tagA\x02foo\x01bar\x02KEYS\x01k1 k2\x02WAIT\x01true\x02TRACE_ON\x01true\x02",
        ),
    ),
    Vector(
        "the same from a 4.9.7 broker",
        HELLO_497,
        message(
            body_crc=0x3610A686,
            born_timestamp_ms=0x1A1FD76CCB2,
            born_host=Host(LOOPBACK, 0xA09E),
            store_timestamp_ms=0x1A1FD76CCCB,
            store_host=Host(LOOPBACK, 30911),
            properties=b"KEYS\x01k1 k2\x02foo\x01bar\x02UNIQ_KEY\x017F0000010001AAAA0000000000000001\x02"
            b"CLUSTER\x01C1\x02TAGS\x01tagA",
        ),
    ),
    Vector(
        "first item of a batch, UNIQ_KEY twice",
        BATCH_ITEM_533,
        message(
            body_crc=0x47CC1BE0,
            queue_id=1,
            offset=Offset(0x4C9),
            born_timestamp_ms=0x1A1FD7397B6,
            store_timestamp_ms=0x1A1FD7397B7,
            body=b"b1",
            properties=b"TAGS\x01x\x02UNIQ_KEY\x017F0000010001AAAA0000000000000006\x02MSG_REGION\x01DefaultRegion\x02"
            b"UNIQ_KEY\x017F0000010001AAAA0000000000000008\x02CLUSTER\x01C1\x02TRACE_ON\x01true\x02",
        ),
    ),
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999) | INT64
_COMPRESSION_FLAGS = st.sampled_from((0, 0x1, 0x101, 0x201, 0x301, 0x701))


def hosts(ipv6: bool) -> st.SearchStrategy[Host]:
    width = 16 if ipv6 else 4
    plain = st.binary(min_size=width, max_size=width)
    mapped = st.binary(min_size=4, max_size=4).map(lambda ip: bytes(10) + b"\xff\xff" + ip)
    return st.builds(Host, plain | mapped if ipv6 else plain, INT32)


_NAMES = st.sampled_from(("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "x")) | st.text(max_size=4)
_VALUES = st.sampled_from(("1", "19", "0", "-1", "x", "k1 k2", " a  b ", " ", "a\tb", "")) | st.text(max_size=8)
_PAIRS = st.lists(
    st.tuples(_NAMES, st.sampled_from("\x01\x02="), _VALUES, st.sampled_from(("\x02", "\x02", "\x01", "")))
)
_FRAGMENTS = st.sampled_from((b"\x01", b"\x02", b"TAGS", b"KEYS", b"a", b"\xff", b"\xe4\xb8", b" ", b"\x00"))
BLOCKS = st.one_of(
    _PAIRS.map(lambda pairs: "".join(map("".join, pairs)).encode("utf-8", "replace")),
    st.lists(_FRAGMENTS, max_size=12).map(b"".join),
)
BODIES = st.binary(max_size=60) | st.sampled_from((b"", b"a" * 300))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Any message that a broker may store, at offset 0."""
    magic = draw(st.sampled_from((V1, V2)))
    bits = draw(st.sampled_from((0, 0x10, 0x20, 0x30))) | draw(st.sampled_from((0, 0x8, 0x80)))
    compression = draw(_COMPRESSION_FLAGS)
    body = draw(BODIES)
    if compression in (0x101, 0x201, 0x301) and draw(st.booleans()):
        body = commitlog.compress(body, commitlog.Compression(compression & 0x700))
    topics = st.sampled_from(("T1", "SCHEDULE_TOPIC_XXXX", "", "é" * 63)) | st.text(max_size=20)
    return message(
        magic=magic,
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        sys_flag=bits | compression,
        born_timestamp_ms=draw(TIMES_MS),
        born_host=draw(hosts(bool(bits & 0x10))),
        store_timestamp_ms=draw(TIMES_MS),
        store_host=draw(hosts(bool(bits & 0x20))),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        body=body,
        topic=draw(topics.filter(lambda topic: len(topic.encode("utf-8", "replace")) < 128 and topic.isprintable())),
        properties=draw(BLOCKS),
    )


blanks = (st.binary(max_size=40) | st.integers(0, 40).map(bytes)).map(
    lambda rest: Blank(Offset(0), 8 + len(rest), rest)
)


@dataclass(frozen=True)
class Log:
    """Records one after the other from offset `start` on, and their bytes."""

    start: Offset
    records: list[Message | Blank]

    @property
    def stored(self) -> bytes:
        return b"".join(map(commitlog.encode, self.records))

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self.stored))

    @property
    def boundaries(self) -> list[Offset]:
        return [record.offset for record in self.records] + [self.end]


def log_of(records: list[Message | Blank], start: int = 0) -> Log:
    """The records, each in its place."""
    placed: list[Message | Blank] = []
    at = start
    for record in records:
        placed.append(dataclasses.replace(record, offset=Offset(at)))
        at += record.size
    return Log(Offset(start), placed)


def logs(max_records: int = 8) -> st.SearchStrategy[Log]:
    """Logs of any records from any offset on."""
    records = st.lists(messages() | messages() | blanks, max_size=max_records)
    return st.builds(log_of, records, st.sampled_from((0, 1, 1 << 20, 1 << 40)))
