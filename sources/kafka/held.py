"""The check that a partition still holds an offset, with errors in Kafka's terms. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sources.bounds import check_within
from sources.errors import AboveMaximum
from sources.offsets import Offset, OffsetRange

_DELETED: Final = (
    "Retention, or somebody who deleted records, was faster than the reader. What lies before is gone: start anew at "
    "earliest."
)


def check_held(wanted: OffsetRange, held: OffsetRange, *, log: object = None) -> None:
    """Raise BelowMinimum or AboveMaximum unless all of `wanted` lies in `held`, what the partition holds now."""
    check_within(wanted, held, log=log, below=_DELETED)


def check_position(number: int, position: Offset, held: Mapping[int, OffsetRange], *, log: object) -> None:
    """Check that partition `number` of a topic that holds `held` can be read on from `position`.

    `log` is the partition's. Raises BelowMinimum or AboveMaximum; the latter also if there is no such partition.
    """
    if number not in held:
        raise AboveMaximum(
            "the topic has no such partition any more",
            log=log,
            offset=position,
            expected=f"partition {number}",
            found=f"{len(held)} partitions, counted from 0",
            hint="Kafka takes no partition away: a broker may lag behind, so try again; or it lost its disk.",
        )
    check_held(OffsetRange(position, position), held[number], log=log)
