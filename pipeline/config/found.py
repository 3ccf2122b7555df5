"""The logs and topics of a configuration as they are now: in place of its patterns, what servers list and tables hold.

What the tables hold and a pattern matches is a log of the configuration, even if no server lists it any more, or none
can be asked: a broker that left waits, and is not forgotten. Prepare the storage first (`pipeline.spark.session`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pipeline.config.configuration import Config
from sinks.books.topic_states import topics_held
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.discovery import Named, Roster, rostered
from sources.errors import ConfigurationError
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.side_by_side import side_by_side

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rosters:
    """What a configuration names at one moment."""

    logs: Roster[ReadOptions]
    topics: Roster[ReplicatedTopicOptions]

    @classmethod
    def of(cls, config: Config) -> Rosters:
        """Ask for it. Raises ConfigurationError, ReplicaError."""
        held_logs = _logs_held(config.warehouse) if config.clusters else ()
        has_pattern = any(one.is_pattern for one in config.topics)
        held_topics = topics_held(config.warehouse) if has_pattern else ()
        logs = rostered(config.log_entries, held_logs, side_by_side)
        return cls(logs, rostered(config.topics, held_topics, side_by_side))

    def among(self, config: Config) -> Config:
        logs, topics = tuple(self.logs.options.values()), Named(self.topics.options)
        return config.model_copy(
            update={"logs": logs, "clusters": (), "topics": (topics,) if self.topics.options else ()}
        )


def found_now(config: Config) -> Config:
    """A copy of `config` that names all logs and topics, for verbs; one without patterns as it is.

    Logs a warning if servers cannot be asked, and an error for an id that is contested, which is left out. Raises
    ConfigurationError, ReplicaError.
    """
    if not config.has_patterns:
        return config
    rosters = Rosters.of(config)
    for one in (rosters.logs, rosters.topics):
        for text, unasked in one.unasked.items():
            log.warning("cannot list %s; only what the replica has of it is known: %s", text, unasked)
        for contested in one.contested.values():
            log.error("%s", contested)
    return rosters.among(config)


def found_for_job(config: Config, *, available_now: bool) -> Config:
    """The same for a job that starts.

    Raises ConfigurationError also for an id that is contested, or if there is nothing to replicate. Raises MasterError
    if servers cannot be asked and the job would therefore have nothing to do, or, with `available_now`, not all.
    """
    if not config.has_patterns:
        return config
    rosters = Rosters.of(config)
    for one in (rosters.logs, rosters.topics):
        for contested in one.contested.values():
            raise contested
        for text, unasked in one.unasked.items():
            if available_now or not (rosters.logs.options or rosters.topics.options):
                raise unasked
            log.warning("cannot list %s; the job goes on with what the replica has of it: %s", text, unasked)
    named = rosters.among(config)
    if not named.logs and not named.topics:
        raise ConfigurationError(
            "there is nothing to replicate", expected="a log or a topic that matches a pattern", found="none"
        )
    return named


def _logs_held(warehouse: str) -> list[LogId]:
    version = newest(LOG.path(absolute(warehouse)))
    return [] if version is None else logs_in(version.domains())
