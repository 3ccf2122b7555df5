"""The handshake against a slave that takes one offset after the other."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sinks.batch.handshake import Append, Replay, clip, decide
from sources.errors import Gap
from sources.offsets import Offset, OffsetRange
from tests.spans import span

few = st.integers(min_value=0, max_value=12)


spans = st.tuples(few, few).map(lambda ends: span(min(ends), max(ends)))


@pytest.mark.parametrize(
    ("position", "batch", "decision"),
    [
        (100, span(100, 200), Append(span(100, 200), is_overlap=False)),
        (150, span(100, 200), Append(span(150, 200), is_overlap=True)),
        (199, span(100, 200), Append(span(199, 200), is_overlap=True)),
        (200, span(100, 200), Replay(Offset(200))),
        (500, span(100, 200), Replay(Offset(500))),
        (None, span(100, 200), Append(span(100, 200), is_overlap=False)),
        (100, span(100, 100), Replay(Offset(100))),
        (None, span(100, 100), Replay(None)),
        (0, span(0, 1), Append(span(0, 1), is_overlap=False)),
    ],
)
def test_decision(position: Offset | None, batch: OffsetRange, decision: Replay | Append) -> None:
    assert decide(position, batch) == decision


def test_a_gap_says_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(Gap) as caught:
        decide(Offset(100), span(101, 200))
    assert caught.value.offset == 100
    assert caught.value.expected == "a batch that starts at or below 100"
    assert caught.value.found == "one that starts at 101, 1 further"
    assert "goes on at the table's position" in (caught.value.hint or "")


@given(few, spans)
def test_like_a_slave_that_takes_one_offset_after_the_other(position: int, batch: OffsetRange) -> None:
    new = [offset for offset in range(batch.start, batch.end) if offset >= position]
    if new and new[0] != position:
        with pytest.raises(Gap):
            decide(Offset(position), batch)
        return
    decision = decide(Offset(position), batch)
    if isinstance(decision, Replay):
        assert not new
        assert decision.position == position
    else:
        assert list(range(decision.range.start, decision.range.end)) == new
        assert decision.is_overlap == (batch.start < position)


@given(spans, spans)
@example(span(30, 40), span(10, 20))
@example(span(10, 20), span(30, 40))
def test_clip_keeps_what_both_hold(split: OffsetRange, wanted: OffsetRange) -> None:
    kept = clip(split, wanted)
    assert wanted.holds(kept)
    assert set(range(kept.start, kept.end)) == set(range(split.start, split.end)) & set(range(wanted.start, wanted.end))
