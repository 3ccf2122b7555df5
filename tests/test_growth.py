"""Whatever a broker, a producer, a registry or a file says, reading it takes time in proportion to its length.

Each case is the input that is worst for a parser or a regular expression that such bytes reach: it ends too late, or
begins again and again. Where a parser refuses the input, that is part of its time.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sinks.storage.errors import passes_as_told
from sinks.typed.definition import Definition
from sinks.typed.formats.avro import Avro
from sinks.typed.formats.binary import long_at
from sinks.typed.formats.csv_record import csv_reader
from sinks.typed.formats.json_fields import NoObject, _depth, fields_of, kind_of
from sinks.typed.formats.scalars import day_of, decimal_of, double_of, instant_us, is_integer, long_of
from sources.access.address import Address
from sources.dister import states
from sources.dister.entries import decode_line
from sources.dister.layout import BatchFile
from sources.dister.line_walk import LineWalk, split_lines
from sources.errors import LogtwinError, find_error
from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.batches import BatchLimits, damage_at, decode_sound
from sources.metadata import CONSUMER_OFFSETS, TOPICS
from sources.offsets import END, Offset, OffsetRange
from sources.rocketmq import metadata
from sources.rocketmq.broker_words import log_bounds, retention
from sources.rocketmq.format import properties
from sources.rocketmq.format.layout import Host
from sources.rocketmq.format.record_search import find_record
from sources.rocketmq.wire.auto_switch import ANSWER_HEAD, EPOCH, AnswerParser
from sources.rocketmq.wire.ha import FrameParser, ReportParser, encode_frame
from sources.rocketmq.wire.remoting import Command, FrameBuffer, Serialization, decode_command, encode_command, loads
from tests.growth import LARGER, MOST, growth
from tests.sources.kafka.batches import decode as decode_batches
from tests.sources.kafka.batches import with_body

Work = Callable[[Any], object]
Make = Callable[[int], Any]

FILE = BatchFile(0, Path("/l/0/0"))
READ_CSV = csv_reader({"a": "string", "b": "bigint"})
AVRO = Avro('{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"int"}}]}')
BY_ID = Definition(name="orders", key=("id",), tombstones=True)


def cents(text: bytes) -> object:
    return decimal_of(text, 38, 2)


def fed(parser: Callable[[], Any], piece: int | None = None) -> Work:
    """Feeds a new parser with `piece` bytes at a time, or all at once."""

    def feed(data: bytes) -> None:
        one, size = parser(), piece or len(data)
        for at in range(0, len(data), size):
            one.feed(data[at : at + size])

    return feed


def json_frame(header: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header), len(header)) + header


def binary_frame(count: int) -> bytes:
    fields = {f"name {number}": "value" for number in range(count)}
    return encode_command(Command(0, flag=1, ext_fields=fields, serialization=Serialization.ROCKETMQ))


def handshake_answer(count: int) -> bytes:
    epochs = b"".join(EPOCH.pack(number + 1, number) for number in range(count))
    return ANSWER_HEAD.pack(1, len(epochs), 1 << 40, count) + epochs


def pairs(form: str) -> Callable[[int], bytes]:
    """A JSON object's inside: so many members of this form, each with its number."""
    return lambda count: ",".join(form % number for number in range(count)).encode()


def walked(lines: bytes) -> None:
    walk = LineWalk(Offset(0))
    for line in split_lines(FILE, 0, [lines]):
        list(walk.feed(line, None))  # type: ignore[arg-type] # nothing here asks what came earlier


def read_batches(log: bytes) -> None:
    decode_batches(log, OffsetRange(Offset(0), END), (), Isolation.READ_COMMITTED, BatchLimits())


def past_damage(log: bytes) -> None:
    wanted = OffsetRange(Offset(0), END)
    damage_at(log, wanted, decode_sound(log, wanted, (), Isolation.READ_COMMITTED, BatchLimits()))


def searched(data: bytes) -> None:
    find_record(data, Offset(0), is_end=True)


def kafka_headers(count: int) -> bytes:
    """A batch of one record with so many empty headers."""
    head = b"\0\0\0\1\1"  # attributes, timestamp, offset, null key, null value
    record = head + _varint(count) + b"\0\0" * count
    return with_body(_varint(len(record)) + record)


def _varint(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


OF_A_BROKER: dict[str, tuple[Make, Work]] = {
    "escaped quotes without an end": (lambda n: b'"' + b'\\"' * n, loads),
    "backslashes without an end": (lambda n: b'"' + b"\\" * n, loads),
    "quotes": (lambda n: b'"' * n, loads),
    "empty strings": (lambda n: b"[" + b'"",' * n + b"0]", loads),
    "blanks": (lambda n: b"{" + b" " * n, loads),
    "commas and blanks": (lambda n: b"," + b" ," * n, loads),
    "digits": (lambda n: b"{" + b"1" * n, loads),
    "a number and blanks": (lambda n: b"{1" + b" " * n, loads),
    "numbers without a colon": (lambda n: b",1" * n, loads),
    "integer keys": (lambda n: b"{" + pairs("%d:1")(n) + b"}", loads),
    "brackets": (lambda n: b"[" * n, loads),
    "objects": (lambda n: b"[" + b"{}," * n + b"0]", loads),
    "lines": (lambda n: b"\n" * n, loads),
    "a remark of escapes": (lambda n: json_frame(b'{"code":1,"remark":"' + b'\\"' * n + b'"}'), decode_command),
    "a remark without an end": (lambda n: json_frame(b'{"code":1,"remark":"' + b'\\"' * n), decode_command),
    "a header's fields": (
        lambda n: json_frame(b'{"code":1,"extFields":{' + pairs('"%d":1')(n) + b"}}"),
        decode_command,
    ),
    "a binary header's fields": (binary_frame, decode_command),
    "a frame byte by byte": (lambda n: json_frame(b'{"code":1}' + b" " * n), fed(FrameBuffer, 1)),
    "frames": (lambda n: json_frame(b'{"code":1}') * n, fed(FrameBuffer)),
    "heartbeats": (lambda n: encode_frame(Offset(5)) * n, fed(lambda: FrameParser(Offset(5)))),
    "a body byte by byte": (lambda n: encode_frame(Offset(5), bytes(n)), fed(lambda: FrameParser(Offset(5)), 1)),
    "epochs byte by byte": (handshake_answer, fed(AnswerParser, 1)),
    "reports": (lambda n: bytes(8 * n), fed(ReportParser)),
    "topics": (
        lambda n: b'{"topicConfigTable":{' + pairs('"t%d":{"attributes":{"b":"1"}}')(n) + b"}}",
        lambda body: metadata.items_of(TOPICS, body),
    ),
    "consumer offsets": (
        lambda n: b'{"offsetTable":{' + pairs('"t%d@g":{0:1}')(n) + b"}}",
        lambda body: metadata.items_of(CONSUMER_OFFSETS, body),
    ),
    "an offset": (lambda n: "1" * n, lambda text: log_bounds({"commitLogMinOffset": text})),
    "a size": (
        lambda n: "Total : " + "1" * n,
        lambda text: retention(
            {"commitLogDirCapacity": text, "commitLogDiskRatio": "0"}, {"mappedFileSizeCommitLog": "1"}
        ),
    ),
    "an address": (lambda n: "a." * n + ":1x", Address.parse),
    "an IPv6 address": (lambda n: "[" + "1" * n, Address.parse),
}
OF_A_PRODUCER: dict[str, tuple[Make, Work]] = {
    "properties": (lambda n: b"a\x01b\x02" * n, properties.decode),
    "tags": (lambda n: "a" * n, properties.tags_code),
    "a delay": (lambda n: "0" * n, properties.delay_ms),
    "a host": (lambda n: "[" + ":" * n, lambda text: Host.parse(text, ipv6=True)),
    "magic numbers": (lambda n: b"\xda\xa3\x20\xa7" * n, searched),
    "heads of blanks": (lambda n: b"\0\0\1\0\xcb\xd4\x31\x94" * n, searched),
    "JSON of escaped quotes": (lambda n: b'{"a":"' + b'\\"' * n + b'"}', fields_of),
    "JSON of deep escaped quotes": (
        lambda n: b'{"a":[' + b"[]," * 101 + b'"' + b'\\"' * n + b'"]}', fields_of
    ),
    "JSON without an end": (lambda n: b'"' + b'\\"' * n, _depth),
    "JSON of brackets": (lambda n: b'{"a":' + b"[" * n, fields_of),
    "JSON of names": (lambda n: b"{" + pairs('"%d":1')(n) + b"}", fields_of),
    "a long number": (lambda n: b'{"a":1' + b"0" * n + b"}", lambda body: [*map(kind_of, fields_of(body).values())]),
    "CSV of quotes": (lambda n: b'"' * n + b"x", READ_CSV),
    "CSV of separators": (lambda n: b"," * n, READ_CSV),
    "CSV of digits": (lambda n: b"a," + b"1" * n + b"e" + b"1" * n + b"x", READ_CSV),
    "Avro of items": (lambda n: b"\x02\x00" * n + b"\0", AVRO.body_fields),
    "a number's bytes": (lambda n: b"\x80" * n, lambda data: long_at(data, 0)),
    "Kafka's headers": (kafka_headers, read_batches),
    "Kafka's batches": (lambda n: b"".join(with_body(b"", 0, base_offset=at) for at in range(n)), read_batches),
    "Kafka's old batches": (
        lambda n: b"".join(with_body(b"", 0, base_offset=at)[:16] + b"\1" + bytes(44) for at in range(n)), past_damage
    ),
}  # fmt: skip
OF_A_LEADER: dict[str, tuple[Make, Work]] = {
    "an entry of escaped quotes": (lambda n: b'10000,300,{"a":"' + b'\\"' * n, decode_line),
    "an entry of digits": (lambda n: b"1" * n, decode_line),
    "an entry of a number": (lambda n: b"10000,1," + b"1" * n, decode_line),
    "an entry of keys": (lambda n: b"10000,310,[" + pairs('"%d"')(n) + b"]", decode_line),
    "broken lines": (lambda n: b"10000,310,[]\n" + b"1,a,broken line\n" * n + b"20000,310,[]\n", walked),
    "services": (lambda n: "1." + ".service.dister" * n + "x", states.parse_key),
    "a state": (lambda n: b'"' + b'\\"' * n, lambda data: states.decode_json(data, "a file")),
}
OF_SPARK_AND_STORES: dict[str, tuple[Make, Work]] = {
    "causes": (lambda n: "Caused by: A." * n, passes_as_told),
    "packages": (lambda n: "a.A$" * n, passes_as_told),
    "exceptions": (lambda n: "AException" * n, passes_as_told),
    "remote exceptions": (lambda n: "RemoteException(" * n, passes_as_told),
    "status codes": (lambda n: "HTTP status " * n, passes_as_told),
    "tokens without an end": (lambda n: "logtwin-error:" * n, find_error),
    "tokens of nothing": (lambda n: "logtwin-error:aa:" * n, find_error),
}
OF_A_VALUE: dict[str, tuple[Make, Work]] = {
    **{f"nines for {read.__name__}": (lambda n: b"9" * n, read) for read in (is_integer, long_of, double_of, cents)},
    "nines behind the point": (lambda n: b"0." + b"9" * n, double_of),
    "an exponent of zeros": (lambda n: b"1e" + b"0" * n + b"1", cents),
    "an exponent of zeros that is none": (lambda n: b"1e" + b"0" * n + b"x", cents),
    "an exponent of nines": (lambda n: b"1e-" + b"9" * n, cents),
    "zeros behind the point": (lambda n: b"0." + b"0" * n + b"1", cents),
    "zeros that are no number": (lambda n: b"1" + b"0" * n + b"x", cents),
    "parts of a second": (lambda n: "2026-11-25T10:00:00." + "9" * n + "x", instant_us),
    "a day and nines": (lambda n: "2026-11-25" + "9" * n, day_of),
    "a deep key of escaped quotes": (lambda n: b"[" * 101 + b'"' + b'\\"' * n, lambda key: BY_ID.tombstone(key, {})),
}
ALL = OF_A_BROKER | OF_A_PRODUCER | OF_A_VALUE | OF_A_LEADER | OF_SPARK_AND_STORES


@pytest.mark.parametrize("name", ALL)
def test_time_is_in_proportion_to_the_bytes(name: str) -> None:
    make, work = ALL[name]
    assert growth(make, refusing(work)) < MOST, f"so many times as long for {LARGER} times as much"


def test_a_quadratic_one_is_noticed() -> None:
    assert growth(bytes, lambda data: [one for one in data for _ in data if one]) > MOST


def refusing(work: Work) -> Work:
    """To refuse the bytes by a named error is an answer, too."""

    def refused(given: Any) -> None:
        with suppress(LogtwinError, NoObject, ValueError, IndexError):
            work(given)

    return refused
