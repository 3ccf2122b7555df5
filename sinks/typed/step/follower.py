"""Bring a typed table on, step by step: each step is one commit.

A step goes from the table's position to that of its logs, or as far as a step may go. It depends only on tables, so it
ends the same if it is killed anywhere, or run by two processes at once:

    the log went back, or lost something    remove those rows, in a commit of their own; with a key see `RowsReplaced`
    the log moved on, or a hole was filled  the messages there become rows

Tasks parse the messages (`sinks/typed/step/parsing.py`), and report fields that have no column. If these make new
columns, the same messages are parsed once more, and the commit that brings the rows also brings the columns. Dead
letters are written first (`sinks/typed/dead_letters.py`), the list of changes last, from the table's own state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import SparkSession

from sinks.delta.commits import retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import discard
from sinks.delta.kernel import KernelConflict, Snapshot
from sinks.state.holes import TakenOut, joined
from sinks.state.rewrite import Exchange, RowSelection, TakingOut
from sinks.typed.columns import Column, ColumnChange, MessagePlace, said_wider, table_spec, widened, with_found
from sinks.typed.dead_letters import DeadLetters, unfit_offsets
from sinks.typed.definition import Definition
from sinks.typed.state import TableWork, TypedState, last_of
from sinks.typed.step.computed import with_computed
from sinks.typed.step.parsing import Parsing
from sinks.typed.step.parsing_job import ParsingJob
from sinks.typed.step.plan import FollowedLogs, StepPlan, is_under_way, plan_of
from sinks.typed.step.report import Report
from sinks.typed.step.suspects import Suspects
from sinks.typed.step.upsert import files_by_key
from sinks.typed.step.widening import Rewritten, can_widen, files_rewritten
from sinks.typed.table import SchemaChanges, TypedTable, TypedView
from sinks.warehouse import absolute
from sources.errors import ConfigurationError, ReplicaError, RowsReplaced, UnfitMessage, WorkerLost
from sources.offsets import LogId, Offset, OffsetRange

_log = logging.getLogger(__name__)
_MOST_RETRIED = 10_000
"""Each message that is retried is a hole, in the state that a commit carries, until it is parsed again."""
_IDLE_S = 10.0
"""How often, at most, a table commits its position if no message came for it."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did. `is_last` says that it has reached the positions of the logs."""

    rows: int = 0
    unfit_values: int = 0
    is_last: bool = True


class TypedFollower:
    """Brings on the typed table of one definition. Driver only; one thread at a time."""

    def __init__(
        self, spark: SparkSession, warehouse: str, wanted: Definition, *, generation: int | None = None
    ) -> None:
        """With `generation`, rebuild the table as that generation, beside the existing one."""
        self._generation = generation
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._wanted = wanted
        self._table = TypedTable(spark, warehouse, wanted.name, anew=generation is not None)
        self._logs = FollowedLogs(spark, warehouse, wanted)
        self._ahead: tuple[TypedState, TypedState] | None = None
        self._suspects = Suspects()
        self._committed_at_s = time.monotonic()
        self._sources: tuple[str, ...] | None = None  # as of the state
        self._seen_version: int | None = None  # version of the logs' table at which there was nothing to do

    @property
    def _rebuild(self) -> str:
        return f"logtwin tables rebuild {self._wanted.name}"

    # These are made on first use: each takes a moment, and a job may have many tables.

    @cached_property
    def _job(self) -> ParsingJob:
        parsing = Parsing(self._wanted, self._table.path, self._dead_letters.path)
        return ParsingJob(self._spark, self._logs.table, parsing)

    @cached_property
    def _dead_letters(self) -> DeadLetters:
        return DeadLetters(self._spark, self._warehouse, self._wanted.name, anew=self._generation is not None)

    @cached_property
    def _changes(self) -> SchemaChanges:
        return SchemaChanges(self._spark, self._warehouse, self._wanted.name)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The topics of which no message had come when the last step ended."""
        return self._wanted.unmatched(self._sources)

    def prepare(self) -> None:
        """Plan the query of the first step in advance. Raises ConfigurationError for an invalid condition."""
        self._job.prepare()

    def step(self) -> StepResult | None:
        """Bring the table on; None if it is at the position of its logs, or there are none yet.

        Raises ReplicaError, ConfigurationError, UnfitMessage: the next step goes on from the same position. Also raises
        RowsReplaced, after which the table has to be rebuilt (`sinks/typed/rebuild.py`).
        """
        return retrying(self.refused)(self._step)

    def refused(self, found: str) -> ReplicaError:
        """That the table takes no commit."""
        return ReplicaError(
            f"the typed table {self._wanted.name} cannot be updated",
            expected=f"to commit to {self._table.path}",
            found=found,
            hint="Somebody else commits to it all the time: is there another job with this table?",
        )

    def bring_to_end(self) -> None:
        """Run steps until one reaches the positions of the logs, and commit that position. Raises as `step` does."""
        while (step := self.step()) is not None and not step.is_last:
            pass
        self.settle()

    def retry(self) -> int:
        """Take out messages that did not fit, so that the next steps parse them again. Returns how many there are.

        With a key only messages that made no row are taken out: it is not known what a row replaced. Raises as `step`
        does.
        """
        return retrying(self.refused)(self._retry)

    def _retry(self) -> int:
        view = self._table.look()
        if view is None or view.state is None:
            return 0
        # Read before the dead letters: if any come later, the commit is refused
        announced = self._announced()
        state = self._standing(view, announced)
        self._seen_version = None
        if is_under_way(announced, state):  # its dead letters are there, and its rows are not: finish it first
            self._step()
            raise KernelConflict("another step is under way")
        unfit = unfit_offsets(self._warehouse, self._wanted.name, state.generation, of_no_row=self._wanted.is_keyed)
        messages = sum(map(len, unfit.values()))
        if messages > _MOST_RETRIED:
            raise ReplicaError(
                f"too many messages of the typed table {self._wanted.name} did not fit to be retried one by one",
                expected=f"at most {_MOST_RETRIED:,}",
                found=f"{messages:,}",
                hint=f"{self._rebuild} makes it anew from the log.",
            )
        ways = {}
        for log_id, offsets in unfit.items():
            was, out = state.logs[log_id], tuple(OffsetRange(one, Offset(one + 1)) for one in offsets)
            ways[log_id] = TableWork(replace(was, holes=joined([*was.holes, *out])), out=out)
        if ways:
            self._take_out(view, state, StepPlan(ways, announced))
        return messages

    def settle(self) -> None:
        """Commit the table's position, even if no message came for it."""
        if self._ahead is not None:
            before, _ = self._ahead
            retrying(self.refused)(self._settle, before)

    def _settle(self, before: TypedState) -> None:
        view = self._table.look()
        if view is not None and self._ahead is not None and view.state in (before, None):
            self._commit(view, self._ahead[1].moved({}))

    def _step(self) -> StepResult | None:
        on = self._logs.table.snapshot()
        if on is None or on.version == self._seen_version:
            return None
        view = self._table.look()
        if view is None or view.state is None:
            view = self._table.make(self._wanted.declared())
        announced = self._announced()
        state = self._standing(view, announced)
        self._sources = state.sources
        plan = plan_of(self._wanted, self._logs, state, announced, on)
        if not plan.ways:
            if view.state is None:
                self._commit(view, state.moved({}))
            self._bring_changes(view, state)
            self._seen_version = on.version
            return None
        if any(one.out or one.back_to is not None for one in plan.ways.values()):
            return self._take_out(view, state, plan)
        return self._bring(view, state, self._suspects.narrowed(plan, state), on)

    def _announced(self) -> TypedState | None:
        """The state that the last step with dead letters goes to. Creates their table, because tasks write to it."""
        self._dead_letters.ensure()
        return self._dead_letters.announced()

    def _standing(self, view: TypedView, announced: TypedState | None) -> TypedState:
        """The table's state, or a later one that is not committed because no message came; unless another step is under
        way."""
        if view.state is None:
            return TypedState(self._wanted.fingerprint, self._generation or 1)
        if view.state.made != self._wanted.fingerprint:
            raise ConfigurationError(
                f"the typed table {self._wanted.name} was made by another definition",
                expected="the [[tables]] that it was made by",
                found=f"another, in {self._table.path}",
                hint=f"{self._rebuild} makes it anew from the log, and exchanges it in one commit.",
            )
        if self._ahead is not None and self._ahead[0] == view.state and not is_under_way(announced, view.state):
            return self._ahead[1]
        return view.state

    def _take_out(self, view: TypedView, state: TypedState, plan: StepPlan) -> StepResult:
        """Take out rows that the logs no longer have. Raises RowsReplaced if a log of a table with a key went back,
        because it is not known what its rows replaced."""
        gone = {log_id: one for log_id, one in plan.ways.items() if one.out or one.back_to is not None}
        back = [log_id for log_id, one in gone.items() if one.back_to is not None and one.out]
        if self._wanted.is_keyed and back:
            raise RowsReplaced(
                f"the log of the typed table {self._wanted.name} went back",
                log=back[0],
                offset=gone[back[0]].back_to,
                found="rows by their key, which do not say what they replaced",
                hint=f"A job makes it anew from the log, and so does {self._rebuild}.",
            )
        to = state.moved({log_id: one.to for log_id, one in gone.items()})
        out = {log_id: list(ranges) for log_id, ranges in plan.undone.items()}
        for log_id, one in gone.items():
            out[log_id] = [*out.get(log_id, ()), *one.out]
        self._dead_letters.bring((), to, out, plan.announced)
        exchange = Exchange()
        if not self._wanted.is_keyed:
            taken = [TakenOut(log_id, one.to.epoch, one.out) for log_id, one in gone.items() if one.out]
            spec = table_spec(self._wanted.name, view.columns)
            exchange = TakingOut(self._table.kernel, spec, RowSelection.taken_out(taken)).on(view.snapshot)
        self._commit(view, to, added=exchange.added, removed=exchange.removed)
        return StepResult(rows=-exchange.rows, is_last=False)

    def _bring(self, view: TypedView, state: TypedState, plan: StepPlan, on: Snapshot) -> StepResult:
        try:
            columns, changes, report = self._parsed(view, plan.ways, on)
        except WorkerLost as error:
            self._suspect(error, plan, on)
            return StepResult(is_last=False)
        if self._suspects.lived():
            self._discard(report)
            return StepResult(is_last=False)
        if self._wanted.stops_at_unfit and report.first_unfit is not None:
            self._discard(report)
            raise self._unfit(report.first_unfit)
        each = {*state.emptied, *report.emptied}
        emptied = sorted(each, key=repr) if self._wanted.keeps_history else last_of(each)
        to = state.moved({log_id: one.to for log_id, one in plan.ways.items()}, changes, report.sources, emptied)
        self._sources = to.sources
        is_emptied = to.emptied != state.emptied
        if not (report.files or report.unfit or changes or is_emptied or any(plan.undone.values())):
            self._pass(view, to)
            return StepResult(is_last=plan.is_last)
        files: Sequence[DataFile] = report.files
        if files and self._wanted.computed:
            files = with_computed(self._spark, self._wanted.name, columns, self._table.path, files)
        self._dead_letters.bring(report.unfit, to, plan.undone, plan.announced)
        rewritten: Rewritten | None = None
        there = {one.name for one in view.columns}
        if any(one.change == "widened" and one.column in there for one in changes):
            rewritten = files_rewritten(self._spark, self._table, view, columns)
        removed, added = rewritten or ([], [])
        if self._wanted.is_keyed and (report.files or is_emptied):
            key = self._wanted.key_columns
            removed, added, files = files_by_key(
                self._spark, self._table, view, columns, key, files, rewritten, to.emptied
            )
        self._commit(view, to, added=[*added, *files], removed=removed, columns=columns)
        self._bring_changes(view, to)
        unfit_values = sum(one.records for one in report.unfit)
        return StepResult(report.rows, unfit_values, plan.is_last)

    def _suspect(self, error: WorkerLost, plan: StepPlan, on: Snapshot) -> None:
        """See `Suspects`. Raises `error` if no message is at fault, or that of a look at the messages."""
        if not self._suspects.died(plan.into, *self._job.held(on, plan.into), error.found or error.problem):
            raise error
        _log.warning("%s; the typed table %s looks for the message", error, self._wanted.name)

    def _bring_changes(self, view: TypedView, state: TypedState) -> None:
        """Record the changes of columns, also those that a killed process has committed but not recorded."""
        if self._generation is None:
            self._changes.bring(view.snapshot.table_id(), state.changes)

    def _pass(self, view: TypedView, to: TypedState) -> None:
        """No message came for the table: commit its new position only now and then."""
        if view.state is None or time.monotonic() - self._committed_at_s > _IDLE_S:
            self._commit(view, to)
        else:
            self._ahead = (view.state, replace(to, number=view.state.number))  # no commit has moved it

    def _parsed(
        self, view: TypedView, ways: Mapping[LogId, TableWork], on: Snapshot
    ) -> tuple[tuple[Column, ...], tuple[ColumnChange, ...], Report]:
        """Parse the messages into rows, with the columns that they need. Raises WorkerLost if that loses a worker."""
        columns, changes = self._columns(view), list[ColumnChange]()
        unwidened: tuple[str, ...] = ()
        doubled: dict[str, MessagePlace] = {}  # columns that this step makes double: the place of the first fraction
        generation = (self._generation or 1) if view.state is None else view.state.generation
        while True:
            report = self._job.report(on, ways, columns, unwidened, generation, self._suspects)
            if self._wanted.schema is not None:
                break
            # If an integer that would lose a digit came first, a step that ended between the two would have left a
            # column of integers. The result must not depend on where steps end.
            hasty = {name for name, place in doubled.items() if report.large.get(name, place) < place}
            if hasty:
                columns = tuple(replace(one, kind="bigint") if one.name in hasty else one for one in columns)
                changes = [replace(one, kind="bigint") if one.column in hasty else one for one in changes]
                changes = [one for one in changes if one.was != one.kind]
                unwidened += tuple(hasty)
                doubled = {name: place for name, place in doubled.items() if name not in hasty}
                self._discard(report)
                continue
            masks = {name: mask for name, mask in self._wanted.masks.items() if name not in self._wanted.dropped}
            columns, added = with_found(
                columns, report.seen.values(), renamed=self._wanted.renamed, masks=masks, most=self._wanted.max_columns
            )
            said = said_wider(columns, report.wider)
            fractions = {name: place for name, place in report.fractions.items() if name not in said}
            files = self._table.files(view) if fractions else []
            fit = {name for name in fractions if can_widen(name, files, self._table.path)}
            unwidened += tuple(name for name in fractions if name not in fit)
            columns, wider = widened(columns, said | {name: ("double", fractions[name]) for name in fit})
            changes += [*added, *wider]
            doubled |= {name: fractions[name] for name in fit}
            for one in columns:
                seen = report.seen.get(one.field)  # only new columns are in there
                if seen is not None and one.kind == "double":
                    doubled[one.name] = seen.first["double"]
            if not added and not fractions and not said:
                break
            self._discard(report)
        return columns, tuple(_in_one(changes)), report

    def _columns(self, view: TypedView) -> tuple[Column, ...]:
        """The table's columns; before its first step those of the definition, which may have changed since."""
        is_begun = view.state is not None or self._generation is not None
        return view.columns if is_begun else self._wanted.declared()

    def _commit(
        self,
        view: TypedView,
        to: TypedState,
        *,
        added: Sequence[DataFile] = (),
        removed: Sequence[StoredFile] = (),
        columns: Sequence[Column] | None = None,
    ) -> None:
        to_be = self._columns(view) if columns is None else columns
        is_other = tuple(to_be) != view.columns
        self._table.commit(view, to, added=added, removed=removed, columns=to_be if is_other else None)
        self._ahead = None
        self._committed_at_s = time.monotonic()

    def _discard(self, report: Report) -> None:
        discard(self._table.path, (one.name for one in report.files))
        discard(self._dead_letters.path, (one.name for one in report.unfit))

    def _unfit(self, first: tuple[MessagePlace, str, str]) -> UnfitMessage:
        place, column, found = first
        return UnfitMessage(
            f"a message does not fit into the typed table {self._wanted.name}",
            log=place.log_id,
            offset=place.offset,
            expected=f"a value for column {column}" if column else f"a body in {self._wanted.reading.format}",
            found=found,
            hint='Mend its schema, or let on_bad = "quarantine" put what does not fit into the table unfit.',
        )


def _in_one(changes: Sequence[ColumnChange]) -> list[ColumnChange]:
    """Merge changes of one step: a column that is added as integers and then widened was added as double."""
    found: dict[str, ColumnChange] = {}
    for one in changes:
        before = found.get(one.column)
        found[one.column] = one if before is None or before.change != "added" else replace(before, kind=one.kind)
    return list(found.values())
