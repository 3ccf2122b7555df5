"""What a task says of one split: what it covered, the files it wrote, what it found damaged. Picklable.

An error travels in it as a value, and the driver raises it again as what it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from sinks.batch.coverage import Covered
from sinks.delta.data_file import DataFile
from sinks.values.continuity import Link
from sources.epochs import Epochs
from sources.errors import LogtwinError
from sources.loss import Condition
from sources.offsets import Offset, OffsetRange


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


@dataclass(frozen=True, slots=True)
class Damaged:
    """A stretch that is no sound record; `is_kept` says that its bytes are in the quarantine file."""

    range: OffsetRange
    condition: Condition
    cause: str
    is_kept: bool


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split of `batch` of a log. Nothing is set where no record starts in it; only `error` where it failed.

    `until` is where it ends short of its own end, because no more had come when its time was up or, with an `error`,
    because that is where the log is damaged.
    """

    log_id: str
    split: OffsetRange
    batch: OffsetRange
    written: tuple[WrittenStretch, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    quarantined: DataFile | None = None
    error: LogtwinError | None = None
    until: Offset | None = None

    @property
    def files(self) -> set[str]:
        """By name the files of the table of records that hold some of it."""
        return {piece.file.name for piece in self.written if piece.file is not None}
