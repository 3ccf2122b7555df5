"""The values of one batch, in the order in which they are made, and the proof between them. Pure.

    SplitReport   what a task says of one split: ranges covered, files written, damage found. It is picklable; an error
                  travels in it as a value, and the driver raises it again as what it was
    ProvenBatch   what may be committed
    BatchResult   what was committed, and how long each BatchStep took: for progress, metrics, and tests that kill there

Records and damage together have to cover the batch exactly: no byte is skipped silently. Damage becomes holes in the
replica, and one incident for each stretch of the same condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from sinks.batch.coverage import Covered, new_part, one_batch, prove
from sinks.delta.data_file import DataFile
from sinks.values.continuity import Link
from sinks.values.incident import Incident
from sinks.values.ledger_row import STREAM, LedgerRow
from sources.epochs import Epochs
from sources.errors import LogtwinError
from sources.loss import leaves_what_is_before
from sources.offsets import Offset, OffsetRange, packed


@packed
@dataclass(frozen=True, slots=True)
class WrittenStretch:
    """A stretch of records, read and written: what it covers, number and checksum of its records and bytes.

    `link` is the last record where records join, `mark` and `epochs` are those of the chunk which ends it. Times are
    microseconds since 1970, UTC; None without a message. `file` holds the records, and maybe others'; None without any.
    """

    covered: Covered
    checksum: str
    bytes: int
    records: int
    link: Link | None
    mark: int | None
    first_store_us: int | None
    last_store_us: int | None
    file: DataFile | None
    epochs: Epochs = ()


@packed
@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split of `batch` of a log. Nothing is set where no record starts in it; only `error` where it failed.

    `damaged` are stretches that are no sound records: QUARANTINED if their bytes are in the file `quarantined`.
    `until` is where it ends short of its own end, because no more had come when its time was up or, with an `error`,
    because that is where the log is damaged.
    """

    log_id: str
    split: OffsetRange
    batch: OffsetRange
    written: tuple[WrittenStretch, ...] = ()
    damaged: tuple[Incident, ...] = ()
    quarantined: DataFile | None = None
    error: LogtwinError | None = None
    until: Offset | None = None

    @property
    def files(self) -> set[str]:
        """The names of the files of the table of records that hold some of it."""
        return {piece.file.name for piece in self.written if piece.file is not None}


@dataclass(frozen=True, slots=True)
class ProvenBatch:
    """A batch that may be committed: `written` and `damaged`, each in order, together cover exactly `range`.

    `late` are the splits behind the first one that ends short: nothing of them is committed.
    """

    range: OffsetRange
    written: tuple[WrittenStretch, ...]
    damaged: tuple[Incident, ...]
    quarantined: tuple[DataFile, ...]
    late: tuple[SplitReport, ...] = ()

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.written)

    @property
    def files(self) -> list[DataFile]:
        """Each file once. A file may also hold records of other logs."""
        return list({piece.file.name: piece.file for piece in self.written if piece.file is not None}.values())

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """The parts of the range that no record covers, in order. They may adjoin."""
        return tuple(piece.range for piece in self.damaged)

    @property
    def link(self) -> Link | None:
        """The last record; None if damage follows it."""
        last = self.written[-1].link if self.written else None
        return last if last is not None and last.end == self.range.end else None

    @property
    def mark(self) -> int | None:
        """The master's mark at the end of the range (`sources.master.Known`); None if damage lies before the end."""
        last = self.written[-1] if self.written else None
        return last.mark if last is not None and last.covered.range.end == self.range.end else None

    @property
    def epochs(self) -> Epochs:
        """The epochs that the master lists below the end of the last record; () if masters are not elected."""
        return self.written[-1].epochs if self.written else ()

    def ledger(self, committed_at_us: int, origin: str = STREAM) -> list[LedgerRow]:
        return [_ledger_row(piece, committed_at_us, origin) for piece in self.written]

    def incidents(self, detected_at_us: int) -> list[Incident]:
        """One for each stretch of the same damage."""
        alike = _stretches(self.damaged, lambda a, b: (a.condition, a.action) == (b.condition, b.action))
        return [replace(one[0], end=one[-1].end, detected_at=detected_at_us) for one in alike]


def prove_batch(reports: Sequence[SplitReport], position: Offset | None) -> ProvenBatch | None:
    """Check the reports of one batch; None if nothing of it is new. Raises a task's error, Gap, CoverageError.

    A place that is damaged or lost does not hold back what is sound before it: that is the batch then. The error is
    raised if nothing is, so by the next batch.
    """
    if not reports:
        return None
    in_order = sorted(reports, key=lambda report: report.split.start)
    new = new_part(one_batch(report.batch for report in in_order), position)
    if new.is_empty:
        return None
    in_time, late, wanted = _up_to_the_first_end(in_order, new)
    if wanted.is_empty:
        return None
    written = sorted((piece for report in in_time for piece in report.written), key=lambda piece: piece.covered.range)
    damaged = sorted((piece for report in in_time for piece in report.damaged), key=lambda piece: piece.range)
    covered = prove(wanted, [*(piece.covered for piece in written), *_as_covered(damaged)])
    quarantined = tuple(report.quarantined for report in in_time if report.quarantined is not None)
    return ProvenBatch(covered, tuple(written), tuple(damaged), quarantined, late)


def _up_to_the_first_end(
    in_order: Sequence[SplitReport], batch: OffsetRange
) -> tuple[Sequence[SplitReport], tuple[SplitReport, ...], OffsetRange]:
    """The reports up to the first one that ends short, those behind it, and the part of `batch` to commit."""
    for at, report in enumerate(in_order):
        if report.error is not None and not (leaves_what_is_before(report.error) and batch.start < _end_of(report)):
            raise report.error
        if report.until is not None:
            return in_order[: at + 1], tuple(in_order[at + 1 :]), OffsetRange(batch.start, report.until)
        if report.error is not None:
            return in_order[:at], tuple(in_order[at:]), OffsetRange(batch.start, report.split.start)
    return in_order, (), batch


def _end_of(report: SplitReport) -> Offset:
    """Where `report`, which has an error, ends."""
    return report.split.start if report.until is None else report.until


def raise_first_error(reports: Iterable[SplitReport]) -> None:
    """Raise the first task's error, for callers that want all of a batch or nothing."""
    in_order = sorted(reports, key=lambda report: report.split.start)
    error = next((report.error for report in in_order if report.error is not None), None)
    if error is not None:
        raise error


def _as_covered(damaged: Iterable[Incident]) -> Iterator[Covered]:
    """Damage belongs to the batch that it starts in, as a record does, however many pieces it was cut into."""
    for stretch in _stretches(damaged, lambda one, other: True):
        start = stretch[0].range.start
        yield Covered(OffsetRange(start, stretch[-1].range.end), start)


def _stretches(damaged: Iterable[Incident], is_alike: Callable[[Incident, Incident], bool]) -> list[list[Incident]]:
    """Group pieces that join and are alike."""
    found: list[list[Incident]] = []
    for piece in damaged:
        last = found[-1][-1] if found else None
        if last is not None and last.range.end == piece.range.start and is_alike(last, piece):
            found[-1].append(piece)
        else:
            found.append([piece])
    return found


def _ledger_row(piece: WrittenStretch, committed_at_us: int, origin: str) -> LedgerRow:
    return LedgerRow(
        start=piece.covered.range.start,
        end=piece.covered.range.end,
        records=piece.records,
        bytes=piece.bytes,
        checksum=piece.checksum,
        first_store_timestamp=piece.first_store_us,
        last_store_timestamp=piece.last_store_us,
        committed_at=committed_at_us,
        origin=origin,
    )


class BatchStep(Enum):
    """The step that a batch has just done; members are in order. A replay does only ACKNOWLEDGE."""

    FILES = "files"
    COMMIT = "commit"
    ACKNOWLEDGE = "acknowledge"
    LEDGER = "ledger"


def no_step(step: BatchStep) -> None:
    """The default listener: it does nothing."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch for one log. `durations_s` has the seconds that each step of the batch took."""

    range: OffsetRange
    records: int
    bytes: int
    durations_s: dict[BatchStep, float] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()


def in_all(results: Sequence[BatchResult]) -> BatchResult:
    """Add up the results of one batch for several logs, at least one. `range` sums their starts and their ends."""
    start, end = sum(one.range.start for one in results), sum(one.range.end for one in results)
    return BatchResult(
        range=OffsetRange(Offset(start), Offset(end)),
        records=sum(one.records for one in results),
        bytes=sum(one.bytes for one in results),
        durations_s=max((one.durations_s for one in results), key=len),
        incidents=[incident for one in results for incident in one.incidents],
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a run's batches. Immutable, so that other threads read consistent totals."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    commits: int = 0
    stage_s: Mapping[BatchStep, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The totals, by the names that `Progress` has for them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def plus(self, result: BatchResult) -> Totals:
        if result.range.is_empty:  # a replay
            return replace(self, batches=self.batches + 1)
        stage_s = {step: self.stage_s.get(step, 0.0) + spent_s for step, spent_s in result.durations_s.items()}
        return Totals(
            records=self.records + result.records,
            bytes=self.bytes + result.bytes,
            batches=self.batches + 1,
            commits=self.commits + 1,
            stage_s={**self.stage_s, **stage_s},
        )
