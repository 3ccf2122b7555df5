"""Whether a partition still holds an offset, said in Kafka's terms. Pure."""

from __future__ import annotations

from typing import Final

from sources.bounds import check_within
from sources.offsets import OffsetRange

_DELETED: Final = (
    "Retention, or somebody who deleted records, was faster than the reader. What lies before is gone: start anew at "
    "earliest."
)


def check_held(wanted: OffsetRange, held: OffsetRange, *, log: object = None) -> None:
    """Raises BelowMinimum or AboveMaximum unless all of `wanted` lies in `held`, what the partition holds now."""
    check_within(wanted, held, log=log, below=_DELETED)
