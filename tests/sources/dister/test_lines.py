"""Lines out of blocks, wherever the blocks are cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister.files.layout import BatchFile
from sources.dister.format.line_walk import Line, split_lines

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
