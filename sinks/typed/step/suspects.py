"""Find the record at which Spark's workers die: take less and less in a step, until that record is alone in one. Pure.

A worker that dies says nothing of the message that it was at. So a step in which one dies is halved:

    a worker dies three times in the same step     half of its messages are taken, and half of these if it dies again
    the smaller step succeeds                      its rows are committed as those of any step, and the rest is halved
    one record is left, and it dies three times    its messages are not read: each becomes a dead letter; of an inner
                                                   batch only some, which are found by halving, too (`InnerBatch`)

Each death counts only if the same messages can be read without being parsed: otherwise the machine is at fault, or the
storage, and no message. So the number of tries is bounded: those above, and one for each binary digit of the number of
offsets. What is suspected is known to this process alone. After a restart the search begins again, where the last
commit has left the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sinks.state.holes import cut, joined
from sinks.typed.state import Followed, TableWork, TypedState, without
from sinks.typed.step.parsing import Indexes, Unread
from sinks.typed.step.plan import StepPlan, is_under_way
from sources.offsets import LogId, Offset, OffsetRange

DEATHS: Final = 3
"""How often a worker has to die at the same messages before anything is made of it."""

MOST_TRIES: Final = 64
"""How often a part of an inner batch is read, at most: what is not known to be sound by then is not read at all."""

Ranges = Mapping[LogId, Sequence[OffsetRange]]


class Suspects:
    """The records of one table among which there is one at which a worker dies; none to begin with."""

    def __init__(self) -> None:
        self._ranges: Ranges = {}
        self._deaths = 0
        self._is_narrowing = False  # at first the very same step is done again
        self._inside: InnerBatch | None = None  # of the only record, once it is found
        self._found = ""

    @property
    def unread(self) -> Unread | None:
        """The record of which some messages must not be read, if it is found: workers died at it alone, three times."""
        if self._inside is None:
            return None
        ((log_id, (record,)),) = self._ranges.items()
        return Unread(str(log_id), record.start, self._inside.read, f"{DEATHS} times: {self._found}")

    def lived(self) -> bool:
        """No worker died in the step. Returns whether it was a try, which must not be committed."""
        if self._inside is None or not self._inside.is_trying:
            return False
        self._inside.lived()
        return True

    def narrowed(self, plan: StepPlan, state: TypedState) -> StepPlan:
        """The plan without what is not to be tried with the suspects. `state` is what it was planned from.

        What the plan no longer brings was brought: it is not suspected any more.
        """
        left = _common(self._ranges, plan.into)
        if left != self._ranges:
            self._ranges, self._inside = left, None
            self._deaths, self._is_narrowing = 0 if self._is_alone else DEATHS, bool(left)
        if not self._is_narrowing:
            return plan
        part = self._next()
        if part == _common(plan.into, plan.into):
            return plan
        ways = {
            log_id: _only(one, part.get(log_id, ()), state.logs.get(log_id))
            for log_id, one in plan.ways.items()
            if log_id in part or not one.into
        }
        undone = dict(plan.undone)
        if is_under_way(plan.announced, state):  # the killed step is not repeated, but a part of it
            undone = {**plan.into, **undone}
        return replace(plan, ways=ways, undone=undone, is_last=False)

    def died(self, tried: Ranges, held: Mapping[LogId, OffsetRange], indexes: int, found: str) -> bool:
        """A worker died in a step of `tried`, which has messages of records from the first to the last in `held`.

        All have an index below `indexes` in their record. Returns False if that is no message's fault: there is none,
        or none was read. Then nothing is suspected.
        """
        again = bool(self._ranges) and _common(self._ranges, tried) == self._ranges
        if self._inside is not None and again:
            if not self._inside.died():
                self._ranges, self._inside = {}, None
        else:
            is_halving = bool(self._ranges) and not again
            self._ranges = _common(tried, {log_id: (one,) for log_id, one in held.items()})
            self._deaths = DEATHS if is_halving and not self._is_alone else self._deaths + 1 if again else 1
            self._inside = InnerBatch(indexes) if self._is_alone and self._deaths >= DEATHS else None
        self._found = found
        self._is_narrowing = bool(self._ranges) and (self._is_narrowing or self._deaths >= DEATHS)
        return bool(self._ranges)

    @property
    def _is_alone(self) -> bool:
        return sum(one.size for several in self._ranges.values() for one in several) == 1

    def _next(self) -> Ranges:
        if self._deaths < DEATHS or self._is_alone:
            return self._ranges
        room = sum(one.size for several in self._ranges.values() for one in several) // 2
        part: dict[LogId, tuple[OffsetRange, ...]] = {}
        for log_id, several in self._ranges.items():
            for one in several:
                taken = OffsetRange(one.start, Offset(min(one.end, one.start + room)))
                room -= taken.size
                if not taken.is_empty:
                    part[log_id] = (*part.get(log_id, ()), taken)
        return part


def _common(some: Ranges, others: Ranges) -> dict[LogId, tuple[OffsetRange, ...]]:
    """What is in both, in as few ranges as possible; no log without any."""
    found = {
        log_id: joined(without(several, without(several, others.get(log_id, ())))) for log_id, several in some.items()
    }
    return {log_id: several for log_id, several in found.items() if several}


def _only(way: TableWork, part: Sequence[OffsetRange], was: Followed | None) -> TableWork:
    """The way that brings only `part` of what `way` brings; the rest is a hole of the table's, or above its position.

    The position does not fall below that of `was`.
    """
    left = without(way.into, part)
    if not left:
        return way
    end, last = way.to.offset, max(left)
    if last.end == end:
        end = max(last.start, Offset(0) if was is None else was.offset)
    return TableWork(Followed(way.to.epoch, end, cut(joined([*way.to.holes, *left]), end)), into=tuple(part))


class InnerBatch:
    """The messages of a record with `count` messages, among which there are some that must not be read.

    Some of them are read, and no others: if a worker dies, half of these are read, and so on. Nothing of it is
    committed, because a table's position does not part the messages of a record.
    """

    def __init__(self, count: int) -> None:
        self._sound: list[Indexes] = []
        self._left: list[Indexes] = [(0, count)]
        self._tries = 0
        self.died()

    @property
    def is_trying(self) -> bool:
        """Whether `read` is a try."""
        return bool(self._left)

    @property
    def read(self) -> tuple[Indexes, ...]:
        """The messages to read: those of a try, or else all that are known to be sound."""
        return (self._left[-1],) if self._left else tuple(sorted(self._sound))

    def lived(self) -> None:
        """No worker died in the try."""
        self._sound.append(self._left.pop())
        self._count_try()

    def died(self) -> bool:
        """A worker died in the try. Returns False if it was none, and there is nothing that could be left out."""
        if not self._left:
            was, self._sound = self._sound, []
            return bool(was)
        start, end = self._left.pop()
        if end - start > 1:
            self._left += [((start + end) // 2, end), (start, (start + end) // 2)]
        self._count_try()
        return True

    def _count_try(self) -> None:
        self._tries += 1
        if self._tries > MOST_TRIES:
            self._left = []
