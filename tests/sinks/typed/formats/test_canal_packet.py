"""Canal's packets, where the recorded ones do not say it: GTIDs, entries that are wrong, and what is no packet."""

from typing import cast

import pyarrow as pa
import pytest

from sinks.typed.columns import SOURCE_ORDER
from sinks.typed.definition import Reading
from sinks.typed.formats.changes import Change
from sinks.typed.formats.json_fields import taken_apart
from sinks.typed.readers import of_canal, reader
from sinks.typed.step.newest import incomparable
from tests.sinks.typed.formats.columns import outcome, texts, wanted

READ = of_canal(wanted(needs_order=True))


def number(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + number(value >> 7) if value >> 7 else bytes([value])


def message(fields: dict[int, int | str | bytes]) -> bytes:
    """In protobuf's encoding."""
    found = b""
    for field, value in fields.items():
        data = value.encode() if isinstance(value, str) else value
        is_number = isinstance(data, int)
        found += number(field << 3 | (0 if is_number else 2))
        found += number(data) if isinstance(data, int) else number(len(data)) + data
    return found


def entry(
    id_: str | None, *, type_: int = 1, table: str = "orders", file: str = "binlog.000003", gtid: str = ""
) -> bytes:
    header = message({2: file, 3: 484, 4: 7, 6: 1_700_000_000_000, 8: "shop", 9: table, 13: gtid})
    rows = {} if id_ is None else {12: message({2: message({3: "id", 8: id_, 10: "int(11)"})})}
    return message({1: header, 2: 2, 3: message({2: type_, **rows})})


def packet(*entries: bytes, **more: int) -> bytes:
    messages = b"".join(message({2: one}) for one in entries)
    return message({2: 1, 3: more.get("type_", 7), 4: more.get("compression", 1), 5: messages})


def test_what_is_wrong_with_an_entry_leaves_the_others() -> None:
    body = packet(entry("1"), entry(None), entry("x", type_=77), entry("9", table="others"), entry("2"))
    rows, numbers, misfits = taken_apart([body], READ)
    assert [texts(one) for one in rows] == [{"id": b"1"}, {"id": b"2"}]
    assert numbers == [0, 0]
    assert [(one.reason, one.found) for one in misfits] == [
        ("no_rows", "the entry of binlog.000003:484: INSERT without data: ")
    ]


def test_what_is_wrong_with_an_entry_leaves_the_tables_of_others() -> None:
    body = packet(
        entry("1"), entry("x", type_=77, table="odd"), entry("9", table="others"), entry("2"), entry("", type_=8)
    )
    rows, _, misfits = taken_apart([body], reader(Reading(format="canal", finds_tables=True)))
    assert [texts(one)["table"] for one in rows] == [b'"orders"', b'"others"']
    assert [one.found for one in misfits] == ["the entry of binlog.000003:484: type 77"]


def test_a_packet_has_a_place_with_and_without_gtids_and_the_two_are_told_apart() -> None:
    told = ([*READ(packet(entry("1", gtid=one)))] for one in ("", "0-1-270"))
    read = [cast("Change", one) for (one,) in told]
    assert [one.order for one in read] == [
        "0000000003.0000000000000000484.0000000000 0001700000000000 7",
        "0000000000000000270 0001700000000000 0",
    ]
    rows = pa.table({"id": [1, 1], SOURCE_ORDER.name: [one.order for one in read]})
    assert incomparable(rows, ["id"], None) is not None
    assert outcome(READ, packet(entry("1", file="nameless"))) == "no_position"


@pytest.mark.parametrize(
    "body",
    [
        packet(entry("1"), type_=3),
        packet(entry("1"), compression=3),
        packet(entry("1"))[:-1],
        packet(b"\x0a\xff"),
        b"\x18",
    ],
)
def test_what_is_no_packet(body: bytes) -> None:
    assert outcome(READ, body) == "not_canal"
