"""What the tasks report of one batch, proven and made ready to be committed. Pure.

Records and damage together have to cover the batch exactly: nothing of it is passed without a word. What is damaged
becomes incidents, one for each stretch of the same condition, and holes of the replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinks.batch.continuity import Link
from sinks.batch.coverage import Covered, one_batch, prove
from sinks.batch.handshake import Replay, decide
from sinks.batch.result import BatchResult, Step
from sinks.batch.split_report import Damaged, SplitReport, Written
from sinks.books.incident import Action, Incident
from sinks.books.ledger_row import STREAM, LedgerRow
from sinks.delta.data_file import DataFile
from sinks.state.holes import joined
from sinks.state.log_state import LogState
from sources.epochs import Epochs
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class ProvenBatch:
    """What is about to be committed: `written` and `damaged`, each in order, join to exactly `range`.

    `late` are the splits behind one whose time was up: nothing of them is committed.
    """

    range: OffsetRange
    is_overlap: bool
    written: tuple[Written, ...]
    damaged: tuple[Damaged, ...]
    quarantined: tuple[DataFile, ...]
    late: tuple[SplitReport, ...] = ()

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.written)

    @property
    def files(self) -> list[DataFile]:
        """Each once; other logs may have records in one, too."""
        return list({piece.file.name: piece.file for piece in self.written if piece.file is not None}.values())

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """What of the range is not among the records."""
        return joined(piece.range for piece in self.damaged)

    @property
    def link(self) -> Link | None:
        """The last record, None where damage follows it."""
        last = self.written[-1].link if self.written else None
        return last if last is not None and last.end == self.range.end else None

    @property
    def mark(self) -> int | None:
        """Of what lies before the end of the range (`sources.master.Known`)."""
        last = self.written[-1] if self.written else None
        return last.mark if last is not None and last.covered.range.end == self.range.end else None

    @property
    def epochs(self) -> Epochs:
        """What the master lists below the end of the last record; () of one that is not elected."""
        return self.written[-1].epochs if self.written else ()

    def ledger(self, committed_at_us: int, origin: str = STREAM) -> list[LedgerRow]:
        return [_ledger_row(piece, committed_at_us, origin) for piece in self.written]

    def result(self, to: LogState, durations_s: Mapping[Step, float] | None = None) -> BatchResult:
        """What it came to, once it is committed and the log is at `to`."""
        return BatchResult(
            range=self.range,
            records=self.records,
            bytes=sum(row.bytes for row in to.ledger),
            is_overlap=self.is_overlap,
            durations_s=dict(durations_s or {}),
            incidents=to.incidents,
        )

    def incidents(self, detected_at_us: int) -> list[Incident]:
        return [_incident(stretch, detected_at_us) for stretch in _stretches(self.damaged, _is_alike)]


def prove_batch(reports: Sequence[SplitReport], position: Offset | None) -> ProvenBatch | None:
    """The reports of one batch, checked; None where nothing of it is new. Raises a task's error, Gap, CoverageError."""
    if not reports:
        return None
    in_order = sorted(reports, key=lambda report: report.split.start)
    _raise_first_error(in_order)
    decision = decide(position, one_batch(report.batch for report in in_order))
    if isinstance(decision, Replay):
        return None
    in_time, late, wanted = _up_to_the_first_end(in_order, decision.range)
    if wanted.is_empty:
        return None
    written = sorted((piece for report in in_time for piece in report.written), key=lambda piece: piece.covered.range)
    damaged = sorted((piece for report in in_time for piece in report.damaged), key=lambda piece: piece.range)
    covered = prove(wanted, [*(piece.covered for piece in written), *_as_covered(damaged)])
    quarantined = tuple(report.quarantined for report in in_time if report.quarantined is not None)
    return ProvenBatch(covered, decision.is_overlap, tuple(written), tuple(damaged), quarantined, late)


def _up_to_the_first_end(
    in_order: Sequence[SplitReport], batch: OffsetRange
) -> tuple[Sequence[SplitReport], tuple[SplitReport, ...], OffsetRange]:
    """The reports up to the first one whose time was up, those behind it, and what of `batch` is wanted then."""
    for at, report in enumerate(in_order, 1):
        if report.until is not None:
            return in_order[:at], tuple(in_order[at:]), OffsetRange(batch.start, report.until)
    return in_order, (), batch


def _raise_first_error(reports: Iterable[SplitReport]) -> None:
    error = next((report.error for report in reports if report.error is not None), None)
    if error is not None:
        raise error


def _as_covered(damaged: Iterable[Damaged]) -> Iterator[Covered]:
    """Damage belongs to the batch that it starts in, as a record does, into however many pieces it was cut."""
    for stretch in _stretches(damaged, lambda one, other: True):
        start = stretch[0].range.start
        yield Covered(OffsetRange(start, stretch[-1].range.end), start)


def _is_alike(one: Damaged, other: Damaged) -> bool:
    return (one.condition, one.is_kept) == (other.condition, other.is_kept)


def _stretches(damaged: Iterable[Damaged], is_alike: Callable[[Damaged, Damaged], bool]) -> list[list[Damaged]]:
    """Pieces that join and are alike, together."""
    found: list[list[Damaged]] = []
    for piece in damaged:
        last = found[-1][-1] if found else None
        if last is not None and last.range.end == piece.range.start and is_alike(last, piece):
            found[-1].append(piece)
        else:
            found.append([piece])
    return found


def _incident(stretch: Sequence[Damaged], detected_at_us: int) -> Incident:
    first = stretch[0]
    return Incident(
        condition=first.condition,
        start=first.range.start,
        end=stretch[-1].range.end,
        cause=first.cause,
        action=Action.QUARANTINED if first.is_kept else Action.SKIPPED,
        detected_at=detected_at_us,
    )


def _ledger_row(piece: Written, committed_at_us: int, origin: str) -> LedgerRow:
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
