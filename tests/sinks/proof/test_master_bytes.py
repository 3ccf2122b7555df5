"""The master's bytes range by range: from one stream, or each asked for."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from sinks.proof.master_bytes import MasterBytes, RangedBytes, StreamedBytes
from sources.offsets import OffsetRange
from tests.sinks.spans import span

LOG = bytes(range(200))


def reused(size: int) -> Iterator[memoryview]:
    """Views of one buffer that is filled anew each time, as of a socket."""
    buffer = bytearray(size)
    for at in range(0, len(LOG), size):
        piece = LOG[at : at + size]
        buffer[: len(piece)] = piece
        yield memoryview(buffer)[: len(piece)]


def asked(wanted: OffsetRange) -> Generator[memoryview]:
    yield memoryview(LOG)[wanted.start : wanted.end]


@pytest.fixture(params=[1, 7, 64, 1000, None], ids=lambda size: "ranges" if size is None else f"stream-{size}")
def master(request: pytest.FixtureRequest) -> MasterBytes:
    return RangedBytes(asked) if request.param is None else StreamedBytes(reused(request.param))


def taken(master: MasterBytes, wanted: OffsetRange) -> bytes:
    return b"".join(map(bytes, master.parts(wanted)))


def view(start: int, end: int) -> memoryview:
    return memoryview(LOG)[start:end]


def test_equal_ranges_pass_one_after_the_other(master: MasterBytes) -> None:
    assert master.passes(span(0, 50), view(0, 50))
    assert master.passes(span(50, 50), view(50, 50))
    assert master.passes(span(50, 200), view(50, 200))


@pytest.mark.parametrize("flipped", [0, 30, 99])
def test_what_differs_is_not_taken_and_can_be_asked_for_in_parts(master: MasterBytes, flipped: int) -> None:
    expected = bytearray(LOG[:100])
    expected[flipped] ^= 1
    whole = memoryview(expected)
    assert not master.passes(span(0, 100), whole)
    assert master.passes(span(0, 50), whole[:50]) is (flipped >= 50)
    if flipped < 50:
        assert not master.passes(span(0, 25), whole[:25]) or flipped >= 25
        rest = span(25 if flipped >= 25 else 0, 50)
        assert taken(master, rest) == LOG[rest.start : rest.end]
    assert master.passes(span(50, 100), whole[50:]) is (flipped < 50)
    if flipped >= 50:
        assert taken(master, span(50, 100)) == LOG[50:100]
    assert master.passes(span(100, 200), view(100, 200))


@pytest.mark.parametrize("end", [9, 11])
def test_other_lengths_are_not_equal(master: MasterBytes, end: int) -> None:
    assert not master.passes(span(0, 10), view(0, end))
    assert taken(master, span(0, 200)) == LOG


def test_a_log_that_has_ended_gives_what_is_left(master: MasterBytes) -> None:
    assert not master.passes(span(0, 300), memoryview(LOG + bytes(100)))
    assert taken(master, span(0, 300)) == LOG
    assert taken(master, span(300, 310)) == b""
