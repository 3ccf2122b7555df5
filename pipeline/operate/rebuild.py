"""What ``logtwin rebuild`` reads: the replica of a log at one version of its table, and what the ledger proves.

Each range of the ledger is compared with its checksum while it is written, and the files are moved into place only
after the last. So either exactly what the master had arrives, or nothing. The kind of master decides which files these
are: `pipeline.operate.rebuild_commit_log`, `pipeline.operate.rebuild_topic`; `pipeline.operate.rebuild_verb` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from sources.errors import ReplicaError
from sources.offsets import LogId, OffsetRange

_HOLES_SHOWN: Final = 20

OnWritten = Callable[[int], None]
"""Receives the number of bytes just written, as `Rebuild.size_bytes` counts them."""


class RebuiltLog(Protocol):
    """The files that were made from one log."""

    def text(self, to: Path) -> str:
        """A line of text for a person; `to` is the directory that it was written to."""


class Rebuild(Protocol):
    """The logs that are rebuilt together, all at one version of their table. Driver only."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are to write; holes do not count."""

    def write(
        self, to: Path, file_size_bytes: int | None, *, zero_holes: bool, on_written: OnWritten
    ) -> Sequence[RebuiltLog]:
        """Make all of the files in the directory `to`, or none. It must be empty, or not exist.

        Raises ReplicaError (holes, unless `zero_holes`; rows that are not what was replicated), ConfigurationError,
        CorruptRecord.
        """


def holed(log_id: LogId, missing: Sequence[OffsetRange], expected: str, with_zero_holes: str) -> ReplicaError:
    """The error that the files would lack the ranges `missing`; `with_zero_holes` says what that option does."""
    shown = ", ".join(map(str, missing[:_HOLES_SHOWN]))
    more = f" and {len(missing) - _HOLES_SHOWN:,} more" if len(missing) > _HOLES_SHOWN else ""
    return ReplicaError(
        "the files would have holes",
        log=log_id,
        offset=missing[0].start,
        expected=expected,
        found=f"no records in {shown}{more}",
        hint=f"Fill them with logtwin backfill, or {with_zero_holes} with --zero-holes.",
    )
