"""Logs and topics that a warehouse holds and its configuration does not name: left behind, or of another file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.config.configuration import Config
from sinks.books.topic_states import topics_held
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in, state_in
from sinks.tables import LOG
from sinks.warehouse import absolute

_NAMED: Final = 5


def unconfigured(config: Config) -> tuple[str, ...]:
    """Those with a position, of a configuration without patterns (`found_now`). Raises ReplicaError."""
    warehouse = absolute(config.warehouse)
    version = newest(LOG.path(warehouse))
    domains = {} if version is None else version.domains()
    named = {one.log_id for one in config.logs} | {one.log_id for one in config.named_topics}
    states = {log_id: [state_in(domains.get, log_id)] for log_id in logs_in(domains) if log_id not in named}
    topics = {topic: [*found.values()] for topic, found in topics_held(warehouse).items() if topic not in named}
    held = (states | topics).items()
    return tuple(
        sorted(str(at) for at, found in held if any(one is not None and one.offset is not None for one in found))
    )


def unconfigured_words(found: Sequence[str]) -> str:
    """A sentence without its full stop, of at least one."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"the warehouse also holds {', '.join(found[:_NAMED])}{more}, not configured here"
