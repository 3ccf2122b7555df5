from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.incidents import Action, Incident
from sinks.kafka.state import Of, PartitionState, TopicState
from sinks.ledger import LedgerRow
from sinks.log_state import Writer
from sources.loss import Condition
from sources.master_topic import PartitionPosition
from sources.offsets import Offset, OffsetRange
from tests.sinks.kafka.memory_topic import TOPIC_ID

WRITER = Writer(run="r", host="h", pid=1, since="2026-11-22T00:00:00+00:00")
FRESH = TopicState.fresh(WRITER)
BEGUN = FRESH.begun(TOPIC_ID, {0: Offset(5), 1: Offset(0)})


def row(start: int, end: int, stored_us: int | None = None) -> LedgerRow:
    return LedgerRow(
        start=Offset(start), end=Offset(end), records=1, bytes=2, checksum="sha256:x",
        first_store_timestamp=stored_us, last_store_timestamp=stored_us, committed_at=9,
    )  # fmt: skip


def incident(start: int, end: int) -> Incident:
    return Incident(
        condition=Condition.BELOW_MINIMUM, start=Offset(start), end=Offset(end), cause="c", action=Action.SKIPPED,
        detected_at=3,
    )  # fmt: skip


offsets = st.integers(0, 2**62).map(Offset)
partitions = st.builds(
    PartitionState,
    epoch=st.integers(0, 9),
    offset=offsets,
    leader_epoch=st.none() | st.integers(0, 99),
    first=offsets,
    holes=st.lists(offsets.map(lambda at: OffsetRange(at, Offset(at + 1))), max_size=2).map(tuple),
)
states = st.builds(
    TopicState,
    writer=st.just(WRITER),
    commit=st.text(max_size=3),
    commits=st.integers(0, 2**40),
    topic_id=st.none() | st.uuids(),
    partitions=st.dictionaries(st.integers(0, 2000), partitions, max_size=4),
    ledger=st.lists(st.just(Of(3, row(0, 7, 1))), max_size=2).map(tuple),
    incidents=st.lists(st.just(Of(4, incident(1, 2))), max_size=2).map(tuple),
)


@given(states)
def test_a_state_survives_its_json(state: TopicState) -> None:
    assert TopicState.from_json(state.as_json()) == state


@pytest.mark.parametrize("key", ["writer", "commits", "topic_id", "partitions", "ledger"])
def test_a_state_without_a_key_is_none(key: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        TopicState.from_json(BEGUN.as_json().replace(f'"{key}"', '"other"'))


def test_a_replica_begins_with_a_topic_and_where_each_partition_starts() -> None:
    assert (FRESH.offset, FRESH.positions, FRESH.commits) == (None, {}, 0)
    assert (BEGUN.topic_id, BEGUN.offset, BEGUN.commits) == (TOPIC_ID, 5, 1)
    assert BEGUN.positions == {0: PartitionPosition(Offset(5), None), 1: PartitionPosition(Offset(0), None)}
    assert {number: one.first for number, one in BEGUN.partitions.items()} == {0: 5, 1: 0}


def test_a_commit_moves_what_it_names_and_counts_once() -> None:
    rows = [Of(0, row(5, 9, 70)), Of(2, row(0, 3, 50))]
    ends = {0: PartitionPosition(Offset(9), 1), 2: PartitionPosition(Offset(3), 0)}
    moved = BEGUN.moved_to(ends, rows)
    assert moved.commits == BEGUN.commits + 1
    assert moved.commit not in ("", BEGUN.commit)
    assert moved.positions == {**BEGUN.positions, **ends}
    assert {number: one.first for number, one in moved.partitions.items()} == {0: 5, 1: 0, 2: 0}  # 2 was added later
    assert (moved.ledger, moved.newest_stored_us, moved.offset) == (tuple(rows), 70, 12)
    # what is owed is of the newest commit alone
    assert moved.moved_to({1: PartitionPosition(Offset(1), 1)}, []).ledger == ()


def test_a_range_that_is_passed_becomes_a_hole_and_an_incident() -> None:
    passed = BEGUN.without(0, incident(5, 8)).without(0, incident(8, 10))
    assert passed.partition(0) == replace(
        BEGUN.partition(0), offset=Offset(10), leader_epoch=None, holes=(OffsetRange(Offset(5), Offset(10)),)
    )
    assert passed.incidents == (Of(0, incident(8, 10)),)
    assert passed.partition(1) == BEGUN.partition(1)
    assert passed.commits == BEGUN.commits + 2


def test_another_owner_changes_nothing_else() -> None:
    other = replace(WRITER, run=uuid.uuid4().hex)
    claimed = BEGUN.claimed_by(other)
    assert claimed == replace(BEGUN, writer=other, commit=claimed.commit)
    assert claimed.commit != BEGUN.commit
