"""The record at which workers die is found, in few tries, and whatever else there is becomes rows once."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sinks.typed.state import Followed, TypedState, way, without
from sinks.typed.step.plan import StepPlan
from sinks.typed.step.suspects import DEATHS, MOST_TRIES, InnerBatch, Ranges, Suspects
from sources.offsets import LogId, Offset, OffsetRange

A, B = LogId.parse("rocketmq/a"), LogId.parse("rocketmq/b")


def spans(*pairs: tuple[int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(Offset(start), Offset(end)) for start, end in pairs)


Message = tuple[LogId, int, int]
"""Its log, the offset of its record, and its index in that."""


@dataclass
class Table:
    """Logs up to `ends` with messages in some records, and a table of them. A worker dies at the messages in `bad`.

    Records have one message, or as many as `sizes` says.
    """

    records: Mapping[LogId, list[int]]
    ends: Mapping[LogId, int]
    bad: set[Message]
    state: TypedState = field(default_factory=lambda: TypedState("made"))
    suspects: Suspects = field(default_factory=Suspects)
    sizes: Mapping[int, int] = field(default_factory=dict)
    rows: list[Message] = field(default_factory=list)
    unfit: list[Message] = field(default_factory=list)
    tries: int = 0
    announced: TypedState | None = None

    def plan(self) -> StepPlan:
        ways = {log_id: way(self.state.logs.get(log_id), 0, Offset(end), (), None) for log_id, end in self.ends.items()}
        return StepPlan(
            {log_id: one for log_id, one in ways.items() if one.to != self.state.logs.get(log_id)}, self.announced
        )

    def within(self, ranges: Ranges) -> list[Message]:
        return [
            (log_id, one, index)
            for log_id, several in ranges.items()
            for one in self.records[log_id]
            if any(one in part for part in several)
            for index in range(self.sizes.get(one, 1))
        ]

    def unread(self, come: list[Message]) -> list[Message]:
        one = self.suspects.unread
        return [
            (log_id, offset, index)
            for log_id, offset, index in come
            if one is not None
            and (str(log_id), offset) == (one.log_id, one.offset)
            and not any(start <= index < end for start, end in one.read)
        ]

    def step(self) -> bool:
        """Returns whether there was anything to do."""
        plan = self.suspects.narrowed(self.plan(), self.state)
        if not plan.ways:
            return False
        self.tries += 1
        come = self.within(plan.into)
        unread = self.unread(come)
        if self.bad & {*come} - {*unread}:
            assert self.suspects.died(plan.into, held(come), 1 + max(index for *_, index in come), "died")
        elif not self.suspects.lived():
            left_out = {*unread}
            self.rows += [one for one in come if one not in left_out]
            self.unfit += unread
            self.state = self.state.moved({log_id: one.to for log_id, one in plan.ways.items()})
        return True

    def bring(self, most: int) -> None:
        while self.step():
            assert self.tries <= most

    @property
    def all(self) -> set[Message]:
        return {*self.within({log_id: spans((0, end)) for log_id, end in self.ends.items()})}


def held(come: list[Message]) -> dict[LogId, OffsetRange]:
    found = {log_id: [one for of, one, _ in come if of == log_id] for log_id in {of for of, *_ in come}}
    return {log_id: OffsetRange(Offset(min(of)), Offset(max(of) + 1)) for log_id, of in found.items()}


@pytest.mark.parametrize("seed", range(40))
def test_the_bad_are_left_out_and_each_other_message_is_there_once(seed: int) -> None:
    chance = random.Random(seed)
    ends = {A: 1 << chance.randrange(4, 30), B: chance.randrange(16, 100_000)}
    records = {log_id: sorted(chance.sample(range(end), 16)) for log_id, end in ends.items()}
    sizes = {one: chance.choice([1, 1, 1, 1, 1, 5, 16]) for several in records.values() for one in several}
    was = Followed(0, Offset(10), spans((2, 4), (6, 7)))  # a table that has much of one log already, and its holes
    state = TypedState("made", logs={A: was} if chance.random() < 0.5 else {})
    table = Table(records, ends, set(), state, sizes=sizes)
    there = {one for one in table.all if one[0] in state.logs and (one[1] < 2 or 4 <= one[1] < 6 or 7 <= one[1] < 10)}
    bad = table.bad = {*chance.sample(sorted(table.all), chance.randrange(4))}
    table.bring(1 + len(bad) * (2 * DEATHS + 2 * 30 + 2 * 7 + 4))
    assert sorted([*table.rows, *table.unfit]) == sorted(table.all - there)
    assert {*table.unfit} == bad - there
    assert table.state.logs == {log_id: Followed(0, Offset(end)) for log_id, end in ends.items()}


def test_if_very_many_messages_of_a_record_are_bad_the_tries_end() -> None:
    table = Table({A: [7]}, {A: 10}, set(), sizes={7: 1_000})
    table.bad = {one for one in table.all if one[2] % 3}
    table.bring(DEATHS + MOST_TRIES + 2)
    assert not table.bad & {*table.rows}
    assert {*table.rows, *table.unfit} == table.all


def test_where_only_all_messages_of_a_record_together_let_a_worker_die_all_are_left_out() -> None:
    inside = InnerBatch(8)
    while inside.is_trying:
        inside.lived()
    read = [inside.read]
    assert inside.died()
    read.append(inside.read)
    assert not inside.died()
    assert read == [((0, 4), (4, 8)), ()]


def test_too_many_messages_at_once_are_taken_in_smaller_steps() -> None:
    """As where memory does not suffice for all of them."""
    table = Table({A: list(range(64))}, {A: 64}, set())
    while table.plan().ways:
        plan = table.suspects.narrowed(table.plan(), table.state)
        if len(come := table.within(plan.into)) > 10:
            assert table.suspects.died(plan.into, held(come), 1, "memory")
        else:
            assert not table.suspects.lived()
            table.rows += come
            table.state = table.state.moved({log_id: one.to for log_id, one in plan.ways.items()})
    assert (table.rows, table.suspects.unread) == (sorted(table.all), None)


def test_suspicion_ends_if_the_worker_dies_without_the_message() -> None:
    suspects, alone = Suspects(), spans((4, 5))
    tried = [spans((0, 10)), alone, alone, alone]
    assert [suspects.died({A: one}, {A: alone[0]}, 1, "died") for one in tried] == [True, True, True, False]
    assert suspects.unread is None


def test_of_a_killed_step_a_part_is_repeated_and_its_dead_letters_go() -> None:
    """It was announced: its dead letters are there, and its rows are not. A worker dies in it now."""
    announced = TypedState("made", number=1, logs={A: Followed(0, Offset(100))})
    table = Table({A: list(range(0, 100, 10))}, {A: 100}, {(A, 70, 0)}, announced=announced)
    for _ in range(DEATHS):
        assert table.suspects.narrowed(table.plan(), table.state) == table.plan()  # the very same step
        table.step()
    plan = table.suspects.narrowed(table.plan(), table.state)
    assert {log_id: tuple(one) for log_id, one in plan.undone.items()} == {A: spans((0, 100))}
    assert plan.into[A][0].size < 100
    assert not plan.is_last


def test_the_rest_of_a_filled_hole_stays_a_hole_and_the_position_does_not_fall() -> None:
    was = Followed(0, Offset(50), spans((10, 40)))
    table = Table({A: list(range(60))}, {A: 60}, {(A, 12, 0)}, TypedState("made", logs={A: was}))
    for _ in range(DEATHS):
        table.step()
    plan = table.suspects.narrowed(table.plan(), table.state)
    (only,) = plan.ways.values()
    assert only.to.offset >= was.offset
    brought = without(spans((0, only.to.offset)), only.to.holes)
    assert sum(one.size for one in brought) == 20 + sum(one.size for one in only.into)
