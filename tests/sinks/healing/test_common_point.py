"""The last common point of two histories, against the dumb way to find it, and how much was compared for it."""

import math
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from sinks.healing.common_point import last_agreeing, last_equal
from sinks.values.continuity import Link
from sources.offsets import Offset, OffsetRange


@given(st.integers(0, 5000).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count))))
def test_the_last_row_that_agrees_is_found_with_few_comparisons(case: tuple[int, int]) -> None:
    count, agreeing = case
    asked: list[int] = []

    def agrees(row: int) -> bool:
        asked.append(row)
        return row < agreeing

    assert last_agreeing(range(count), agrees) == (agreeing - 1 if agreeing else None)
    assert asked[:1] == list(range(count))[-1:]
    assert len(asked) == len(set(asked))
    assert agreeing < count or len(asked) <= 1
    distance = count - agreeing + 1
    assert len(asked) <= 2 * math.log2(distance) + 2


RECORDS = st.lists(st.tuples(st.integers(0, 5), st.binary(min_size=1, max_size=20)), min_size=1, max_size=30)


def laid_out(records: list[tuple[int, bytes]], start: int) -> list[tuple[OffsetRange, bytes]]:
    """Records with so many bytes between each and the one before, from `start` on."""
    found, at = [], start
    for gap, raw in records:
        found.append((OffsetRange(Offset(at + gap), Offset(at + gap + len(raw))), raw))
        at += gap + len(raw)
    return found


def pieces_of(data: bytes, size: int) -> Iterator[memoryview]:
    """In pieces that are gone when the next is asked for."""
    for at in range(0, len(data), size):
        with memoryview(data[at : at + size]) as piece:
            yield piece


@given(RECORDS, st.integers(0, 1 << 40), st.integers(1, 50), st.data())
def test_records_are_compared_up_to_the_first_that_differs(
    given_records: list[tuple[int, bytes]], start: int, piece: int, data: st.DataObject
) -> None:
    records = laid_out(given_records, start)
    log = bytearray(records[-1][0].end - start)
    for covered, raw in records:
        log[covered.start - start : covered.end - start] = raw
    cut = data.draw(st.integers(0, len(log)), label="the master's log ends here")
    del log[cut:]
    changed = data.draw(st.integers(0, len(log)), label="and has another byte here")
    if changed < len(log):
        log[changed] ^= 0xFF
    same = []
    for covered, raw in records:
        if bytes(log[covered.start - start : covered.end - start]) != raw:
            break
        same.append(Link.of(covered, raw))
    assert last_equal(records, pieces_of(bytes(log), piece), Offset(start), counts_bytes=True) == (
        same[-1] if same else None
    )
