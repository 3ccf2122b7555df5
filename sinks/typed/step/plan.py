"""Plan one step of a typed table, by comparing its state with those of the logs that it follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from sinks.delta.delta_log import Version
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.fence import logs_in, state_at
from sinks.state.log_table import Held, held_at
from sinks.typed.definition import Definition
from sinks.typed.state import Followed, TableWork, TypedState, way
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange


def positions_at(version: Version, wanted: Definition) -> dict[LogId, Offset]:
    """The positions of the logs that `wanted` follows and that have data at `version` of their table.

    Raises ReplicaError.
    """
    states = {one: state_at(version, one) for one in logs_in(version.domains()) if wanted.follows(one)}
    return {log_id: one.offset for log_id, one in states.items() if one is not None and one.offset}


class FollowedLogs:
    """The logs that one definition follows. Driver only; one thread at a time. Raises ReplicaError."""

    def __init__(self, spark: SparkSession, warehouse: str, wanted: Definition) -> None:
        self._wanted = wanted
        self.table = KernelTable(spark, wanted.source.path(absolute(warehouse)))

    def held_in(self, on: Snapshot) -> dict[LogId, Held]:
        """The logs that have data at version `on` of `table`."""
        log_ids = (one for one in logs_in(on.domains()) if self._wanted.follows(one))
        found = {log_id: held_at(on, log_id) for log_id in log_ids}
        return {log_id: held for log_id, held in found.items() if held.offset}

    def newest(self) -> dict[LogId, Held]:
        """The logs that have data now; none if there is no table."""
        on = self.table.snapshot()
        return {} if on is None else self.held_in(on)


_STEP_BYTES = 1 << 30
_STEP_MESSAGES = 1_000_000
_SHARES = 32  # in the largest step


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step is about to do.

    `undone` are ranges of messages for which a killed step has left dead letters that no longer hold.
    """

    ways: Mapping[LogId, TableWork]
    announced: TypedState | None
    undone: Mapping[LogId, Sequence[OffsetRange]] = field(default_factory=dict)
    is_last: bool = True

    @property
    def into(self) -> dict[LogId, tuple[OffsetRange, ...]]:
        """The ranges whose messages the step adds."""
        return {log_id: one.into for log_id, one in self.ways.items() if one.into}


def share_size(wanted: Definition) -> int:
    """How many offsets of the table's logs are worth a task."""
    return (_STEP_MESSAGES if wanted.kafka_topics else _STEP_BYTES) // _SHARES


def is_under_way(announced: TypedState | None, state: TypedState) -> bool:
    """Whether a step has committed its dead letters but not its rows: it is running, or was killed."""
    return announced is not None and announced.made == state.made and announced.number > state.number


def plan_of(
    wanted: Definition, logs: FollowedLogs, state: TypedState, announced: TypedState | None, on: Snapshot
) -> StepPlan:
    """The next step: the way of each log that has moved, as far as one step goes.

    If a step was killed between its dead letters and its rows, the plan is that very step, unless one of its logs has
    gone back since: then its dead letters are removed. Raises ReplicaError.
    """
    held = logs.held_in(on)
    killed: dict[LogId, TableWork] = {}
    if announced is not None and is_under_way(announced, state):
        killed = {
            log_id: way(state.logs.get(log_id), to.epoch, to.offset, to.holes, Offset(0))
            for log_id, to in announced.logs.items()
            if to != state.logs.get(log_id)
        }
        epochs = {log_id: one.epoch for log_id, one in held.items()}
        if all(one.back_to is None and epochs.get(log_id) == one.to.epoch for log_id, one in killed.items()):
            return StepPlan(killed, announced, is_last=False)
    most = _STEP_MESSAGES if wanted.kafka_topics else _STEP_BYTES
    ways: dict[LogId, TableWork] = {}
    is_last = True
    for log_id, one in held.items():
        was, end = state.logs.get(log_id), one.offset
        if was is not None and was.epoch == one.epoch and was.offset > end:
            raise _ahead_of(wanted, log_id, was, end)
        reach = Offset(min(end, (was.offset if was is not None else one.holes.front) + most))
        found = way(was, one.epoch, reach, one.holes.ranges, _branched_at(logs, log_id, was, one))
        if found.to != was:
            ways[log_id] = found
        is_last = is_last and found.to.offset == end
    return StepPlan(ways, announced, {log_id: one.into for log_id, one in killed.items()}, is_last)


def _branched_at(logs: FollowedLogs, log_id: LogId, was: Followed | None, held: Held) -> Offset | None:
    """Where the log left the history of `was`; the lowest offset, if it went back several times."""
    if was is None or was.epoch == held.epoch or held.state is None:
        return None
    files = logs.table.files(held.snapshot, {"log_id": str(log_id)})
    later = [one.statistics() for one in files if one.statistics().get("maxValues", {}).get("epoch", 0) > was.epoch]
    starts = [one.get("minValues", {}).get("offset", 0) for one in later]
    at = held.state.offset if held.state.branched_at is None else held.state.branched_at
    return Offset(min([at or 0, *starts]))


def _ahead_of(wanted: Definition, log_id: LogId, was: Followed, end: Offset) -> ReplicaError:
    return ReplicaError(
        f"the typed table {wanted.name} is ahead of its log",
        log=log_id,
        offset=end,
        expected=f"at most epoch {was.epoch}, offset {end}",
        found=f"offset {was.offset}",
        hint=f"The log was restored from an older copy: logtwin tables rebuild {wanted.name} makes the table anew.",
    )
