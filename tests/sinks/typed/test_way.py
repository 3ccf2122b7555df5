"""What a log asks of a typed table, against a model: a table is what its log has, offset by offset."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sinks.state.holes import joined
from sinks.typed.state import Emptied, Followed, TypedState, way
from sources.offsets import LogId, Offset, OffsetRange

LAST = 12
LOG = LogId("rocketmq", "a")


def ranges(offsets: set[int]) -> tuple[OffsetRange, ...]:
    return joined(OffsetRange(Offset(one), Offset(one + 1)) for one in offsets)


def offsets(parts: tuple[OffsetRange, ...]) -> set[int]:
    return {offset for one in parts for offset in range(one.start, one.end)}


SETS = st.sets(st.integers(0, LAST - 1))


@given(st.lists(st.tuples(st.integers(0, LAST), SETS, st.booleans(), st.integers(0, LAST)), max_size=6))
def test_the_table_has_what_its_log_has(history: list[tuple[int, set[int], bool, int]]) -> None:
    """A log moves on, loses parts, has them back, goes back to where it parts from what it was."""
    followed: Followed | None = None
    rows: dict[int, int] = {}  # which epoch wrote the offset that the table has
    log: dict[int, int] = {}
    epoch, end = 0, 0
    for to, lost, goes_back, branch in history:
        branched: int | None = None
        if goes_back:
            epoch += 1
            branched = end = min(branch, end)
            log = {offset: of for offset, of in log.items() if offset < end}
        end = max(end, to)
        for offset in range(end):
            log.setdefault(offset, epoch)
        holes = ranges({offset for offset in lost if offset < end})
        for _ in range(3):
            found = way(followed, epoch, Offset(end), holes, None if branched is None else Offset(branched))
            assert not (found.out and found.into)
            for offset in offsets(found.out):
                rows.pop(offset, None)
            for offset in offsets(found.into):
                assert offset not in rows, "twice"
                rows[offset] = log[offset]
            followed = found.to
        assert rows == {offset: of for offset, of in log.items() if offset not in offsets(holes)}
        assert followed == Followed(epoch, Offset(end), holes)


@given(SETS, st.integers(0, 12))
def test_what_is_whole_goes_to_the_first_gap(missing: set[int], end: int) -> None:
    there = [at for at in range(end) if at not in missing]
    first_run = [at for number, at in enumerate(there) if at == there[0] + number]
    whole = Followed(0, Offset(end), ranges({at for at in missing if at < end})).whole
    assert list(range(whole.start, whole.end)) == first_run


def test_a_state_survives_json() -> None:
    state = TypedState("made", 2, 3, {LOG: Followed(1, Offset(7), ranges({2, 3}))})
    assert TypedState.from_json(state.as_json()) == state
    emptied = Emptied(str(LOG), 5, stored_us=7, at_us=6), Emptied(str(LOG), 6, order="1 0")
    assert TypedState.from_json(state.moved({}, emptied=emptied).as_json()).emptied == emptied
    assert TypedState.from_json(state.moved({LOG: Followed(1, Offset(9))}).as_json()).number == 4


def test_a_state_of_before_histories_has_the_newest_that_emptied_the_table() -> None:
    values = json.loads(TypedState("made", 1).as_json()) | {"emptied": {"log_id": str(LOG), "offset": 7}}
    assert TypedState.from_json(json.dumps(values)).emptied == (Emptied(str(LOG), 7),)
