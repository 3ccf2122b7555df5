"""What a task says of its splits of a topic: what was answered, and the one file it wrote. Travels as JSON.

An error that a retry cannot help travels in it as a value, and the driver raises it again as what it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from sinks.files import DataFile
from sources.errors import LogtwinError, error_from
from sources.offsets import LogId, Offset, OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One split of a partition as it was answered: all of `range`, never empty, was asked for, `records` were there.

    `bytes` and `checksum` are of the chunks' `raw`; `leader_epoch` is that of the offset where the range ends, as
    `PartitionChunk.epoch` has it. Times are microseconds since 1970, UTC; None where no record has one.
    """

    partition: int
    range: OffsetRange
    records: int
    bytes: int
    checksum: str
    first_timestamp_us: int | None
    last_timestamp_us: int | None
    leader_epoch: int | None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**values, "range": _range(values["range"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One task of a batch of the topic `log_id`. Only `error` is set where it failed.

    `batches` are the partition and its batch of every split that the task was given, each once; `answered` what the
    positions left of these; `file` holds all its records, None without any.
    """

    log_id: LogId
    batches: tuple[tuple[int, OffsetRange], ...] = ()
    answered: tuple[Answered, ...] = ()
    file: DataFile | None = None
    error: LogtwinError | None = None

    def as_json(self) -> str:
        values = {
            "log_id": str(self.log_id),
            "batches": [[partition, asdict(batch)] for partition, batch in self.batches],
            "answered": [asdict(one) for one in self.answered],
            "file": None if self.file is None else asdict(self.file),
            "error": None if self.error is None else self.error.facts(),
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(
            log_id=LogId.parse(values["log_id"]),
            batches=tuple((partition, _range(batch)) for partition, batch in values["batches"]),
            answered=tuple(map(Answered.from_dict, values["answered"])),
            file=None if values["file"] is None else DataFile(**values["file"]),
            error=None if values["error"] is None else error_from(values["error"]),
        )


def _range(values: Mapping[str, Any]) -> OffsetRange:
    return OffsetRange(Offset(values["start"]), Offset(values["end"]))
