"""Where reading begins if nothing was read before."""

from __future__ import annotations

from sources.bounds import check_within
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange
from sources.options import EARLIEST, LATEST, StartingOffset


def resolved(wanted: StartingOffset, bounds: OffsetRange, log: MasterLog) -> Offset:
    """Return the offset that `wanted` means if `log` holds `bounds`: a record boundary, if the log can know it.

    Raises BelowMinimum or AboveMaximum for an offset that it does not hold, and as `MasterLog.boundary_after` does.
    """
    if wanted == EARLIEST:
        return bounds.start
    if wanted == LATEST:
        return bounds.end
    offset = Offset(int(wanted))
    check_within(OffsetRange(offset, offset), bounds, log=log.log_id)
    return log.boundary_after(offset, bounds.end)
