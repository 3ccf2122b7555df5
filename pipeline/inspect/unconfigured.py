"""Logs and topics that a warehouse holds and its configuration does not name: left behind, or of another file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.config.configuration import Config
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in, state_in
from sinks.tables import KAFKA_LOG, LOG
from sinks.warehouse import absolute

_NAMED: Final = 5


def unconfigured(config: Config) -> tuple[str, ...]:
    """Those with a position, of a configuration without patterns (`found_now`). Raises ReplicaError."""
    named = {one.log_id for one in config.logs} | {one.log_id for one in config.named_topics}
    found = set[str]()
    for spec in (LOG, KAFKA_LOG):
        version = newest(spec.path(absolute(config.warehouse)))
        domains = {} if version is None else version.domains()
        for log_id in logs_in(domains):
            if log_id.master not in named and str(log_id.master) not in found:
                state = state_in(domains.get, log_id)
                found |= {str(log_id.master)} if state is not None and state.offset is not None else set()
    return tuple(sorted(found))


def unconfigured_words(found: Sequence[str]) -> str:
    """A sentence without its full stop, of at least one."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"the warehouse also holds {', '.join(found[:_NAMED])}{more}, not configured here"
