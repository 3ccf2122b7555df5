"""What the tasks report of one batch of a topic, proven and made ready to be committed. Pure.

Each partition is proven by itself: one batch, the handshake with its position, and answers that join from the position
to the batch's end. Offsets without a record are fine, for what was asked and answered is what counts; a split that
nobody answered is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sinks.coverage import HINT, one_batch, prove_exactly
from sinks.files import DataFile
from sinks.handshake import Append, decide
from sinks.kafka.split_report import Answered, TopicReport
from sinks.kafka.tasks import Held
from sinks.ledger import LedgerRow
from sources.errors import CoverageError, naming
from sources.master_topic import PartitionPosition, partition_log
from sources.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Moved:
    """How far one partition gets: by all of `range`, never empty, to `end`. `is_overlap`: its batch began below."""

    range: OffsetRange
    is_overlap: bool
    end: PartitionPosition


@dataclass(frozen=True, slots=True)
class ProvenTopicBatch:
    """What is about to be committed: `answered`, in order, joins to exactly what each of `moved` moves by."""

    moved: Mapping[int, Moved]
    answered: tuple[Answered, ...]
    files: tuple[DataFile, ...]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.answered)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.answered)

    def ledger(self, committed_at_us: int) -> tuple[tuple[int, LedgerRow], ...]:
        """The rows of each partition, one for each split."""
        return tuple((one.partition, _ledger_row(one, committed_at_us)) for one in self.answered)


def prove_topic_batch(
    reports: Sequence[TopicReport], held: Mapping[int, Held], default: Held
) -> ProvenTopicBatch | None:
    """The reports of one batch, checked; None where nothing is new in any partition.

    `held` is what the replica has of each partition, `default` of those not in there. Raises a task's error; Gap and
    CoverageError, which name the partition's log.
    """
    _raise_first_error(reports)
    for report in reports:
        _check_file(report)
    answered = sorted(
        (one for report in reports for one in report.answered), key=lambda one: (one.partition, one.range)
    )
    moved: dict[int, Moved] = {}
    for number, batches in _batches(reports).items():
        mine = [one for one in answered if one.partition == number]
        with naming(partition_log(reports[0].log_id, number)):
            move = _move(one_batch(batches), mine, held.get(number, default))
        if move is not None:
            moved[number] = move
    files = tuple(report.file for report in reports if report.file is not None)
    return ProvenTopicBatch(moved, tuple(answered), files) if moved else None


def _raise_first_error(reports: Iterable[TopicReport]) -> None:
    error = next((report.error for report in reports if report.error is not None), None)
    if error is not None:
        raise error


def _check_file(report: TopicReport) -> None:
    """That the file has what the answers had: nothing else says that their records are in it."""
    expected = sum(one.records for one in report.answered)
    found = 0 if report.file is None else report.file.records
    if expected != found:
        problem = "a task's file holds other records than were answered"
        raise CoverageError(problem, log=report.log_id, expected=f"{expected} records", found=found, hint=HINT)


def _batches(reports: Iterable[TopicReport]) -> dict[int, list[OffsetRange]]:
    """The batches that splits say they belong to, of every partition that is named."""
    found: dict[int, list[OffsetRange]] = {}
    for report in reports:
        for one in report.answered:
            found.setdefault(one.partition, [])
        for number, batch in report.batches:
            found.setdefault(number, []).append(batch)
    return dict(sorted(found.items()))


def _move(batch: OffsetRange, answered: Sequence[Answered], held: Held) -> Moved | None:
    """How far `answered`, in order, takes a partition; None where nothing of `batch` is new, and nothing was read."""
    decision = decide(held.offset, batch)
    wanted = decision.range if isinstance(decision, Append) else OffsetRange(batch.end, batch.end)
    prove_exactly(wanted, (one.range for one in answered))
    if not isinstance(decision, Append):
        return None
    return Moved(wanted, decision.is_overlap, PartitionPosition(wanted.end, answered[-1].leader_epoch))


def _ledger_row(answered: Answered, committed_at_us: int) -> LedgerRow:
    return LedgerRow(
        start=answered.range.start,
        end=answered.range.end,
        records=answered.records,
        bytes=answered.bytes,
        checksum=answered.checksum,
        first_store_timestamp=answered.first_timestamp_us,
        last_store_timestamp=answered.last_timestamp_us,
        committed_at=committed_at_us,
    )
