"""What a task says of one split: what it covered, the files it wrote, what it found damaged. Travels as JSON.

An error that a retry cannot help travels in it as a value, and the driver raises it again as what it was.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from sinks.batch.continuity import Link
from sinks.batch.coverage import Covered
from sinks.delta.data_file import DataFile
from sources.epochs import Epoch, Epochs
from sources.errors import LogtwinError, error_from
from sources.loss import Condition
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class Written:
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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Written:
        covered = Covered(OffsetRange(**values["covered"]["range"]), values["covered"]["last_record_start"])
        link = None if values["link"] is None else Link.from_dict(values["link"])
        file = None if values["file"] is None else DataFile(**values["file"])
        epochs = tuple(map(Epoch.from_dict, values["epochs"]))
        return cls(**{**values, "covered": covered, "link": link, "file": file, "epochs": epochs})


@dataclass(frozen=True, slots=True)
class Damaged:
    """A stretch that is no sound record; `is_kept` says that its bytes are in the quarantine file."""

    range: OffsetRange
    condition: Condition
    cause: str
    is_kept: bool

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "condition": self.condition.value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Damaged:
        return cls(OffsetRange(**values["range"]), Condition(values["condition"]), values["cause"], values["is_kept"])


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split of `batch` of a log. Nothing is set where no record starts in it; only `error` where it failed.

    `until` is where it ends short of its own end, because no more had come when its time was up.
    """

    log_id: str
    split: OffsetRange
    batch: OffsetRange
    written: tuple[Written, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    quarantined: DataFile | None = None
    error: LogtwinError | None = None
    until: Offset | None = None

    @property
    def files(self) -> set[str]:
        """By name the files of the table of records that hold some of it."""
        return {piece.file.name for piece in self.written if piece.file is not None}

    def as_json(self) -> str:
        values = {
            "log_id": self.log_id,
            "split": asdict(self.split),
            "batch": asdict(self.batch),
            "written": [piece.as_dict() for piece in self.written],
            "damaged": [piece.as_dict() for piece in self.damaged],
            "quarantined": None if self.quarantined is None else asdict(self.quarantined),
            "error": None if self.error is None else self.error.facts(),
            "until": self.until,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> SplitReport:
        values = json.loads(text)
        return cls(
            log_id=values["log_id"],
            split=OffsetRange(**values["split"]),
            batch=OffsetRange(**values["batch"]),
            written=tuple(map(Written.from_dict, values["written"])),
            damaged=tuple(map(Damaged.from_dict, values["damaged"])),
            quarantined=None if values["quarantined"] is None else DataFile(**values["quarantined"]),
            error=None if values["error"] is None else error_from(values["error"]),
            until=values["until"],
        )
