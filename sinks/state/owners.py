"""Find whose rows a data file may have, without opening it. Driver only.

The file's statistics say it, but those of older versions, and of OPTIMIZE, may have ids cut at 32 characters. The logs'
states at the same version of the table say more: a log has no row without a state, none at or above its position, and
none in a hole.
"""

from __future__ import annotations

from collections.abc import Mapping

from sinks.delta.delta_log import StoredFile
from sinks.delta.file_statistics import bounds, holds_only, may_hold
from sinks.delta.kernel import Snapshot
from sinks.state.fence import logs_in, state_in
from sinks.state.holes import HOLES_DOMAIN, Holes
from sinks.state.log_state import LogState
from sinks.tables import LOG_ID
from sources.offsets import LogId, Offset, OffsetRange


def is_of(file: StoredFile, log_id: LogId) -> bool:
    """Whether the statistics of `file` prove that all its rows belong to `log_id`."""
    return holds_only(file.statistics(), LOG_ID.name, str(log_id))


def offsets_of(file: StoredFile) -> OffsetRange | None:
    """The range in which the rows of `file`, of all logs, start; None if the statistics do not say."""
    least, greatest = bounds(file.statistics(), "offset")
    return None if least is None or greatest is None else OffsetRange(least, greatest + 1)


def lies_in(file: StoredFile, wanted: OffsetRange) -> bool:
    """Whether all rows of `file`, of all logs, start in `wanted`."""
    offsets = offsets_of(file)
    return offsets is not None and wanted.holds(offsets)


def others_in(file: StoredFile, on: Snapshot, log_id: LogId) -> list[LogId]:
    """The logs other than `log_id` that may have rows in a file of the table log, according to version `on`."""
    if is_of(file, log_id):
        return []
    domains, statistics, offsets = on.domains(), file.statistics(), offsets_of(file)
    return [
        one
        for one in sorted(logs_in(domains))
        if one != log_id
        and may_hold(statistics, LOG_ID.name, str(one))
        and (state := state_in(domains.get, one)) is not None
        and _may_have_rows(one, state, domains, offsets)
    ]


def _may_have_rows(log_id: LogId, state: LogState, domains: Mapping[str, str], offsets: OffsetRange | None) -> bool:
    """Whether some of `offsets` (None: any offset) lie below the log's position and in no hole of it."""
    if state.repair is not None:  # its position is about to change
        return True
    if state.offset is None or offsets is None:
        return state.offset is not None
    below = OffsetRange(Offset(min(offsets.start, state.offset)), Offset(min(offsets.end, state.offset)))
    return not below.is_empty and not _holes(log_id, state, domains).hold(below)


def _holes(log_id: LogId, state: LogState, domains: Mapping[str, str]) -> Holes:
    text = domains.get(f"{HOLES_DOMAIN}{log_id}")
    return Holes.from_json(text) if text is not None else Holes.before(state.first or Offset(0))
