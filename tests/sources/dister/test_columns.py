"""Entries as rows, and back."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister import columns
from sources.dister.columns import KEY_VALUES, changes_of
from sources.dister.entries import ACT_REMOVE, ACT_SET, MAX_ID, Entry, decode_line, encode_line
from sources.dister.layout import BatchFile, batch_number
from sources.dister.line_walk import Line, Sound, split_lines
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import RECORD_SCHEMA, Changes

LINES = [
    b'10007,300,{"b":"\\u003cx\\u003e","a":"\xc3\xa9"}',
    b'20001,310,["a","none"]',
    b"1000020001,999,[1]",
    b'001000030001,300, {"a":"3"} ',
    b"1000040001,300,{}",
]


def group(lines: list[bytes]) -> list[Sound]:
    end, found = Offset(0), []
    for text in lines:
        entry = decode_line(text)
        batch = BatchFile(batch_number(entry.id), Path("/l"))
        found.append(Sound(end, entry, Line(batch, 0, text, is_whole=True)))
        end = Offset(entry.id + 1)
    return found


def test_what_the_columns_of_an_entry_say() -> None:
    records = columns.encode(group(LINES))

    assert records.schema == RECORD_SCHEMA
    told = records.select(
        ["offset", "size", "kind", "topic", "queue_id", "queue_offset", "keys", "body", "flag", "stored_properties"]
    )
    assert [tuple(row.values()) for row in told.to_pylist()] == [
        (0, 10008, "message", "set", 0, 10007, ["b", "a"], LINES[0][10:], 300, None),
        (10008, 9994, "message", "remove", 0, 20001, ["a", "none"], b'["a","none"]', 310, None),
        (20002, 1_000_000_000, "message", "act 999", 1, 1_000_020_001, None, b"[1]", 999, None),
        (1_000_020_002, 10_000, "message", "set", 1, 1_000_030_001, ["a"], b' {"a":"3"} ', 300, b"001000030001,300,"),
        (1_000_030_002, 10_000, "message", "set", 1, 1_000_040_001, [], b"{}", 300, None),
    ]
    others = [name for name in RECORD_SCHEMA.names if name not in told.schema.names]
    assert all(records.column(name).null_count == len(LINES) for name in others)


@pytest.mark.parametrize("name", ["size", "flag", "body"])
def test_a_row_that_lacks_something_is_corrupt(name: str) -> None:
    rows = columns.encode(group(LINES)).to_pylist()
    rows[1][name] = None
    records = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    with pytest.raises(CorruptRecord, match="lacks a value that its line needs") as raised:
        columns.restore(records)
    assert raised.value.offset == 10008
    assert columns.lengths(records).tolist() == [0 if at == 1 else len(line) + 1 for at, line in enumerate(LINES)]


# what entries do to the map: seed behaviours DI-43 to DI-47, scenarios 2, 8 and 10


SET, REMOVE, UNKNOWN = 300, 310, 999
SCHEMA = pa.schema([RECORD_SCHEMA.field(name) for name in KEY_VALUES.made_from]).remove_metadata()

Act = tuple[int, Any]


def rows(*acts: Act) -> pa.RecordBatch:
    """Entries with the ids 10007, 20007, …: each continues the one before, the first the empty log."""
    ids = [index * 10_000 + 7 for index in range(len(acts) + 1)]
    ids[0] = -1
    values = [
        {"offset": before + 1, "size": entry_id - before, "flag": act, "body": json.dumps(items).encode()}
        for before, entry_id, (act, items) in zip(ids, ids[1:], acts, strict=False)
    ]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


def live(changes: Changes) -> dict[str, str]:
    return {key: change.value for key, change in changes.items() if change.value is not None}


@pytest.mark.parametrize(
    ("act", "items"), [(SET, ["a"]), (SET, {"a": 1}), (SET, None), (REMOVE, {"a": "1"}), (REMOVE, [1])]
)
def test_a_row_that_is_no_entry_is_named(act: int, items: Any) -> None:
    with pytest.raises(CorruptRecord) as caught:
        changes_of(rows((SET, {"a": "1"}), (act, items)))
    assert caught.value.offset == 10008


ACTS = st.one_of(
    st.tuples(st.just(SET), st.dictionaries(st.sampled_from("abcde"), st.text(max_size=3), max_size=3)),
    st.tuples(st.just(REMOVE), st.lists(st.sampled_from("abcde"), max_size=3)),
    st.tuples(st.sampled_from((0, UNKNOWN)), st.dictionaries(st.sampled_from("abcde"), st.text(max_size=3))),
)


def replayed(acts: list[Act]) -> dict[str, str]:
    """The map as dister makes it, entry by entry."""
    data: dict[str, str] = {}
    for act, items in acts:
        if act == SET:
            data.update(items)
        elif act == REMOVE:
            for key in items:
                data.pop(key, None)
    return data


@given(st.lists(ACTS, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_the_map_is_a_replay_of_the_log_wherever_batches_are_cut(acts: list[Act], cuts: list[int]) -> None:
    """DI-47."""
    batch, changes = rows(*acts), Changes()
    edges = sorted({0, len(acts), *(cut for cut in cuts if cut < len(acts))})
    for start, end in pairwise(edges):
        changes |= changes_of(batch.slice(start, end - start))
    assert live(changes) == replayed(acts)


# lines of the log as values; and lines out of blocks


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("line", "entry_id", "act", "items"),
    [
        (b'10007,300,{"a":"x"}', 10007, 300, {"a": "x"}),
        (b'20001,310,["a"]', 20001, 310, ["a"]),
        (b'30001,300,{"a":"1","b":"2"}', 30001, 300, {"a": "1", "b": "2"}),
        (b"30001,300,{}", 30001, 300, {}),
        (b"30001,310,[]", 30001, 310, []),
    ],
)
def test_lines_as_dister_writes_them(line: bytes, entry_id: int, act: int, items: dict[str, str] | list[str]) -> None:
    assert decode_line(line) == Entry(entry_id, act, line, items)
    assert encode_line(entry_id, act, items) == line + b"\n"


def test_the_encoder_escapes_as_gos_does() -> None:
    value = '<b>&\u2028\u2029"\\\n\r\t\b\f\x01\x7fé😀\ud800'
    assert encode_line(10001, ACT_SET, {"k": value}) == (
        rb'10001,300,{"k":"\u003cb\u003e\u0026\u2028\u2029\"\\\n\r\t\u0008\u000c\u0001'
        + b"\x7f\xc3\xa9\xf0\x9f\x98\x80"
        + rb'\ufffd"}'
        + b"\n"
    )


def test_the_encoder_sorts_keys_by_their_bytes() -> None:
    assert encode_line(10001, ACT_SET, {"é": "", "b": "", "": "", "B": "", "😀": "", "\uffff": ""}) == (
        '10001,300,{"":"","B":"","b":"","é":"","\uffff":"","😀":""}\n'.encode()
    )


@given(st.integers(1, MAX_ID), st.dictionaries(TEXTS, TEXTS) | st.lists(TEXTS))
def test_what_is_written_is_read(entry_id: int, items: dict[str, str] | list[str]) -> None:
    act = ACT_SET if isinstance(items, dict) else ACT_REMOVE
    line = encode_line(entry_id, act, items)
    entry = decode_line(line[:-1])
    assert line.count(b"\n") == 1
    assert (entry.id, entry.act, entry.items) == (entry_id, act, items)
    assert entry.head + entry.items_json == entry.line == line[:-1]


def test_of_a_key_that_stands_twice_the_last_counts_and_half_a_surrogate_pair_is_none() -> None:
    entry = decode_line(b'10001,300,{"a":"1","b":"2","a":"3"}')
    assert entry.items == {"a": "3", "b": "2"}
    assert decode_line(b'10001,310,["a","a"]').keys == ["a", "a"]
    assert decode_line(rb'10001,300,{"\ud800":"a\udc00b\ud83d\ude00"}').items == {"\ufffd": "a\ufffdb😀"}  # as of Go


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no entry at all", "no entry"),
        (b'10001;300,{"a":"x"}', "no entry"),
        (b'-10001,300,{"a":"x"}', "no entry"),
        (b' 10001,300,{"a":"x"}', "no entry"),
        (b"10001,300", "no entry"),
        ("١٠٠٠١,300,{}".encode(), "no entry"),
        (b'10001,300,{"a":"x"', "no JSON"),
        (b'10001,300,{"a":"x"}20001,300,{"a":"y"}', "no JSON"),
        (b'10001,300,{"a":"\xff"}', "no JSON"),
        (b"10001,999,NaN", "no JSON"),
        (b"10001,300,", "no JSON"),
        (b"10001,999," + b"[" * 100_000, "no JSON"),
        (b'10001,300,{"a":1}', "no strings"),
        (b'10001,300,{"a":null}', "no strings"),
        (b'10001,300,["a"]', "no strings"),
        (b"10001,300,null", "no strings"),
        (b'10001,310,{"a":"x"}', "no keys"),
        (b"10001,310,[1]", "no keys"),
        (b'%d,300,{"a":"x"}' % (MAX_ID + 1), "id is out of range"),
        (b'10001,2147483648,{"a":"x"}', "act is out of range"),
        (b"0" * 5000 + b'1,300,{"a":"x"}', "id is out of range"),
    ],
)
def test_what_is_no_entry_is_refused(line: bytes, problem: str) -> None:
    """DI-32."""
    with pytest.raises(CorruptRecord, match=problem) as raised:
        decode_line(line)
    assert raised.value.expected
    assert raised.value.found
    assert len(raised.value.found) < 300


ODD_ITEMS = ("[" * 3000, '{"a":' * 2000, "null", r'{"k":"\ud800"}', '{"k":NaN}', "9" * 5000, "-" + "8" * 4400, "1e999")
ANY_LINE = st.binary(max_size=40) | st.tuples(
    st.integers(0, 2 * MAX_ID), st.sampled_from((300, 310, 999, 2**31)), st.sampled_from(ODD_ITEMS) | TEXTS
).map(lambda parts: f"{parts[0]},{parts[1]},{parts[2]}".encode())


@given(ANY_LINE)
def test_any_line_is_an_entry_that_gives_it_back_or_corrupt(line: bytes) -> None:
    try:
        entry = decode_line(line)
    except CorruptRecord as error:
        assert "makes its decoder fail" not in str(error)
    else:
        assert entry.head + entry.items_json == line


# lines out of blocks, wherever the blocks are cut


BATCH = BatchFile(1, Path("/l/0/1"))
DATA = b'1000000007,300,{"a":"x"}\n\n\r\nshort\n' + b"x" * 300 + b"\ntorn"


@given(st.lists(st.integers(0, len(DATA))))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(DATA)]
    blocks = [DATA[start:end] for start, end in pairwise(edges)]
    assert list(split_lines(BATCH, 100, blocks)) == [
        Line(BATCH, 100, b'1000000007,300,{"a":"x"}', is_whole=True),
        Line(BATCH, 125, b"", is_whole=True),
        Line(BATCH, 126, b"\r", is_whole=True),
        Line(BATCH, 128, b"short", is_whole=True),
        Line(BATCH, 134, b"x" * 300, is_whole=True),
        Line(BATCH, 435, b"torn", is_whole=False),
    ]


@pytest.mark.parametrize(
    ("text", "is_whole", "head_id", "digits"),
    [
        (b'1000000007,300,{"a":"x"}', True, 1_000_000_007, 1_000_000_007),
        (b'1000000007,300,{"a":"x"}', False, None, 1_000_000_007),
        (b'7,300,{"a":"x"}', True, None, 7),  # of another file
        (b"1000000007 and more", True, None, 1_000_000_007),
        (b"no digits at all", True, None, None),
        (b"9" * 39, True, None, None),
        (b"", True, None, None),
    ],
)
def test_what_a_line_begins_with(text: bytes, is_whole: bool, head_id: int | None, digits: int | None) -> None:
    line = Line(BATCH, 0, text, is_whole)
    assert (line.head_id, line.digits) == (head_id, digits)
    assert line.end == len(text) + is_whole
