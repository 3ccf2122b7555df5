"""``logtwin backfill``: fills holes below a replica's position, from its master or from a copy.

The wanted holes, chosen by offset or by the master's time (`Wanted`), are read in batches, each a Spark job of parallel
splits and a commit of its own, while the stream goes on; `sinks/healing/hole_filler.py` does that, and checks that the
source is the same log. What the source does not hold, and what is damaged there, stays a hole. A second run, even at
the same time, does no harm: it fills only what is still missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.coverage import read_accounts
from pipeline.inspect.selection import ConfiguredLog
from pipeline.monitoring.display import extent, size
from pipeline.monitoring.single_connection import alone_at
from sinks.batch.proof import BatchStep, no_step
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import LedgerRows
from sinks.healing.hole_filler import FilledRange, HoleFiller, compare_neighbours, free_at_end
from sinks.history.key_values import KeyedStateFollower
from sinks.proof.completeness import Completeness, Reason
from sinks.proof.stored import StoredLog
from sinks.state.holes import Holes, joined
from sinks.state.log_table import Held, LogTable
from sinks.tables import log_table
from sinks.values.incident import State
from sinks.values.ledger_row import BACKFILL
from sinks.warehouse import absolute
from sources.errors import ConfigurationError
from sources.loss import OnLoss
from sources.offsets import END, LogId, Offset, OffsetRange

log = logging.getLogger(__name__)
_NOTE = "logtwin backfill: every record of the range is in the table"
Bound = int | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResult:
    """The result of a backfill of one log.

    `holes` are those that were wanted, `filled` what this run filled of them, `remaining` what is still missing.
    `healed` are the ids of incidents whose ranges are complete again.
    """

    log_id: str
    holes: tuple[OffsetRange, ...]
    filled: tuple[OffsetRange, ...] = ()
    remaining: tuple[OffsetRange, ...] = ()
    records: int = 0
    bytes: int = 0
    healed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        ranges = {"holes": self.holes, "filled": self.filled, "remaining": self.remaining}
        return {
            "log": self.log_id,
            **{name: [{"start": one.start, "end": one.end} for one in found] for name, found in ranges.items()},
            "records": self.records,
            "bytes": self.bytes,
            "healed": list(self.healed),
        }


def run_backfill(
    spark: SparkSession,
    config: Config,
    subject: ConfiguredLog,
    wanted: Wanted,
    *,
    path: str | None = None,
    dry_run: bool = False,
    is_alone: bool = False,
    on_step: Callable[[BatchStep], None] = no_step,
) -> BackfillResult:
    """Fill the `wanted` holes of one log of `config`, from the directory `path` if given, else from its master.

    With `dry_run` nothing is done. `is_alone` says that the caller is in `alone_at` already. Raises Rewritten and
    CoverageError (the source is a different log), RepairPending, ReplicaError, and what reading and `alone_at` raise.
    What was committed before an error stays.
    """
    log_id = subject.log_id
    table = LogTable(spark, log_table(log_id).path(absolute(config.warehouse)), log_id)
    holes = _wanted_holes(config.warehouse, log_id, table.read(), wanted)
    if dry_run:
        return BackfillResult(log_id=str(log_id), holes=holes, remaining=holes)
    filler = HoleFiller(spark, config.warehouse, log_id, on_step)
    held = filler.look()
    filled: list[FilledRange] = []
    if holes:
        source = subject if path is None else subject.by_path(path)
        with nullcontext() if is_alone else alone_at(config.warehouse, source.open(), "backfill"):
            filled += _Backfill(spark, config.warehouse, filler, source).fill(holes)
        held = table.read()
    KeyedStateFollower(spark, config.warehouse, subject.open()).follow()
    brought = joined(part for one in filled for part in one.ranges)
    return BackfillResult(
        log_id=str(log_id),
        holes=holes,
        filled=brought,
        remaining=joined(part for hole in holes for part in held.holes.within(hole)),
        records=sum(one.records for one in filled),
        bytes=sum(one.bytes for one in filled),
        healed=_heal(spark, config.warehouse, log_id, held),
    )


def result_lines(result: BackfillResult, *, dry_run: bool) -> Iterator[str]:
    if not result.holes:
        yield f"{result.log_id}: nothing is missing"
    elif not dry_run:
        yield f"{result.log_id}: filled in {result.records:,} records, {size(result.bytes)}"
    for filled in result.filled:
        yield f"  filled {filled.start:,} to {filled.end:,}"
    for left in result.remaining:
        how_much = extent(left.size, LogId.parse(result.log_id))
        yield f"  {'missing' if dry_run else 'still missing'} {left.start:,} to {left.end:,}, {how_much}"
    for name in result.healed:
        yield f"  incident {name} is healed"


def _wanted_holes(warehouse: str, log_id: LogId, held: Held, wanted: Wanted) -> tuple[OffsetRange, ...]:
    """The wanted parts of the holes, in order.

    What the replica's own retention deleted is not missing: it comes back only if `wanted` has a start.
    """
    holes = held.holes.ranges
    needs_accounts = holes and (wanted.needs_times or wanted.start is None)
    accounts = read_accounts(warehouse, log_id) if needs_accounts else None
    if accounts is not None:
        complete = Completeness.of(accounts)
        if wanted.start is None:
            holes = joined(one.range for one in complete.missing if one.reason is not Reason.RETENTION)
        holes = tuple(hole for hole in holes if wanted.may_lie_between(*complete.times_around(hole)))
    return Holes(ranges=holes).within(wanted.offsets)


class _Backfill:
    """One run: fills the holes of a log from a source."""

    def __init__(self, spark: SparkSession, warehouse: str, filler: HoleFiller, subject: ConfiguredLog) -> None:
        self._filler = filler
        self._subject = subject
        self._source = subject.open()
        self._stored = StoredLog(spark, warehouse, self._source)
        self._source.check()
        self._in_source = self._source.bounds()

    def fill(self, wanted: Sequence[OffsetRange]) -> Iterator[FilledRange]:
        """Fill the `wanted` parts of holes with what the source holds, batch by batch."""
        for part in wanted:
            held = self._filler.look()
            for hole in held.holes.ranges:
                if hole.start < part.end and part.start < hole.end:
                    free = free_at_end(hole, self._source, self._in_source)
                    yield from self._fill_hole(held, hole, self._readable(hole, part, free), free)

    def _readable(self, hole: OffsetRange, part: OffsetRange, free: OffsetRange) -> OffsetRange:
        """The part of `part` of `hole` that the source holds, cut at record boundaries.

        A stream can only be cut where a hole begins. Whether a record reaches across the end of `hole` shows when it is
        read, except for the ids that are `free` there.
        """
        held, source = self._in_source, self._source
        wanted_from = part.start if source.traits.cuts_at_records else hole.start
        start, end = max(wanted_from, hole.start, held.start), min(part.end, free.start, held.end)
        if start >= end:
            return OffsetRange(hole.start, hole.start)
        if start not in (hole.start, held.start):
            start = source.boundary_after(start, end)
        if end not in (free.start, held.end):
            end = min(source.boundary_after(end, held.end), free.start)
        return OffsetRange(start, end)

    def _fill_hole(self, held: Held, hole: OffsetRange, part: OffsetRange, free: OffsetRange) -> Iterator[FilledRange]:
        if part.is_empty:
            return
        committed = held.offset
        neighbours = compare_neighbours(self._stored, self._source, self._in_source, hole, committed)
        if not neighbours.are_known and self._source.identity() is None:
            self._check_joins(hole, part, free)
        # Damage may be passed only in what is known to be the same log. Otherwise it could hide a different log.
        on_loss: OnLoss = "record" if neighbours.are_known else "fail"
        source = self._subject.open(on_loss)
        at, link = part.start, neighbours.before if part.start == hole.start else None
        while True:
            held = self._filler.look()
            left = held.holes.within(part.starting_at(at))
            if not left:
                return
            link = link if left[0].start == at else None  # None if another backfill has filled the part before
            filled = self._filler.fill(held, self._batch(left[0]), source, link, free)
            if filled is not None:
                log.info("%s: filled %s", self._subject.log_id, ", ".join(map(str, filled.ranges)) or "nothing")
                at, link = filled.range.end, filled.link
                yield filled

    def _check_joins(self, hole: OffsetRange, part: OffsetRange, free: OffsetRange) -> None:
        """If no record could be compared, the source's records must at least join the replica's.

        Raises ConfigurationError if they do not.
        """
        if part.end == free.start or part.start == hole.start > 0:
            return
        raise ConfigurationError(
            "nothing says that the source is this log",
            log=self._subject.log_id,
            offset=part.start,
            expected=f"a source that also holds the record before {hole.start} or the one at {hole.end}, to compare it "
            "with the replica",
            found=f"one that holds {self._in_source}, at {self._source.address}",
            hint="Put the segment file with that record beside the others.",
        )

    def _batch(self, left: OffsetRange) -> OffsetRange:
        end = self._source.end_of_batch(left.start, left.end, self._subject.batch_bytes)
        return OffsetRange(left.start, end)


def _heal(spark: SparkSession, warehouse: str, log_id: LogId, held: Held) -> tuple[str, ...]:
    """End the open incidents whose ranges a backfill, this one or a killed one, has filled. Returns their ids."""
    position = None if held.state is None else held.state.offset
    incidents, ledger = IncidentsTable(spark, warehouse, log_id), LedgerRows(spark, warehouse, log_id)
    healed = tuple(
        row.id
        for row in incidents.open()
        if position is not None
        and row.found.end <= position
        and not held.holes.within(row.found.range)
        and _is_backfilled(ledger, row.found.range, row.found.detected_at)
    )
    incidents.end(healed, State.HEALED, _NOTE, time.time_ns() // 1000)
    return healed


def _is_backfilled(ledger: LedgerRows, place: OffsetRange, since_us: int) -> bool:
    return any(row.origin == BACKFILL and row.committed_at >= since_us for row in ledger.overlapping(place))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted holes: offsets from `start` on and below `end`.

    If a bound is a time, it selects whole holes that may lack messages which were stored on its side. None is no bound.
    """

    start: Bound = None
    end: Bound = None

    @classmethod
    def parse(cls, start: str | None, end: str | None) -> Wanted:
        """Parse two bounds, each an offset or a time in ISO 8601, UTC if it has no zone. Raises ConfigurationError."""
        wanted = cls(_bound("--from", start), _bound("--to", end))
        if wanted.is_backwards:
            raise ConfigurationError("--to lies before --from", expected=f"{start} or more", found=end)
        return wanted

    @property
    def is_backwards(self) -> bool:
        bounds = (self.start, self.end)
        match bounds:
            case (int() as start, int() as end):
                return end < start
            case (datetime() as start, datetime() as end):
                return end < start
        return False

    @property
    def needs_times(self) -> bool:
        return isinstance(self.start, datetime) or isinstance(self.end, datetime)

    @property
    def offsets(self) -> OffsetRange:
        """The range that the bounds allow that are offsets."""
        start = self.start if isinstance(self.start, int) else 0
        end = self.end if isinstance(self.end, int) else END
        return OffsetRange(Offset(start), Offset(end))

    def may_lie_between(self, after_us: int | None, before_us: int | None) -> bool:
        """Whether the bounds that are times allow a hole between messages stored at these times.

        Both are µs since 1970; None if there is no such message.
        """
        is_early = isinstance(self.start, datetime) and before_us is not None and before_us < _micros(self.start)
        is_late = isinstance(self.end, datetime) and after_us is not None and after_us >= _micros(self.end)
        return not is_early and not is_late


def _bound(option: str, text: str | None) -> Bound:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{option} is not usable", expected="an offset, or a time like 2026-01-31T12:00:00Z", found=text
        ) from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
