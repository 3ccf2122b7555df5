"""Lines of the log <-> values; and lines out of blocks."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister.entries import ACT_REMOVE, ACT_SET, MAX_ID, Entry, decode_line, encode_line
from sources.dister.layout import BatchFile
from sources.dister.line_walk import Line, split_lines
from sources.errors import CorruptRecord

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
