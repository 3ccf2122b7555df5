"""The logs and topics of a configuration as they are now: in place of its patterns, what servers list and tables hold.

What the tables hold and a pattern matches is a log of the configuration, even if no server lists it any more, or none
can be asked: a broker that left waits, and is not forgotten. Prepare the storage first (`pipeline.spark.session`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pipeline.config.configuration import Config
from sinks.books.topic_states import topics_held
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in, state_in
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.access.spread import side_by_side
from sources.bounds import EARLIEST
from sources.discovery import Named, Roster, Warn, rostered
from sources.errors import ConfigurationError
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.shards import Shard

log = logging.getLogger(__name__)

Options = TypeVar("Options", ReadOptions, ReplicatedTopicOptions)


@dataclass(frozen=True, slots=True)
class Rosters:
    """What a configuration names at one moment."""

    logs: Roster[ReadOptions]
    topics: Roster[ReplicatedTopicOptions]

    @classmethod
    def of(cls, config: Config, held: Collection[LogId] | None = None, warn: Warn = log.warning) -> Rosters:
        """Ask for it; `held` are the ids in the replica, if they are known. Raises ReplicaError."""
        if held is None:
            held = logs_held(config)
        return cls(
            rostered(config.log_entries, held, side_by_side, warn), rostered(config.topics, held, side_by_side, warn)
        )

    def in_shard(self, shard: Shard | None) -> Rosters:
        """The logs that fall into `shard`, and every topic, of which it has partitions, or may have."""
        if shard is None:
            return self
        logs = {log_id: options for log_id, options in self.logs.options.items() if shard.has(log_id)}
        topics = {
            log_id: options.model_copy(update={"shard": shard}) for log_id, options in self.topics.options.items()
        }
        return Rosters(
            replace(self.logs, options=logs, unlisted=self.logs.unlisted & logs.keys()),
            replace(self.topics, options=topics),
        )

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
    """The same for a job that starts. What has no position, of a pattern of which others have one, begins at its oldest
    record: it was found later, and nothing that came before is lost. With `available_now` what no server lists is left
    out. Of all that, a job of a shard takes its share, which may be nothing.

    Raises ConfigurationError also for an id that is contested, or if there is nothing to replicate. Raises MasterError
    if servers cannot be asked and the job would therefore have nothing to do, or, with `available_now`, not all.
    """
    rosters = _found_at_start(config, available_now=available_now)
    if not rosters.logs.options and not rosters.topics.options:
        raise ConfigurationError(
            "there is nothing to replicate",
            expected="a log or a topic, by name or by a pattern that matches",
            found="none",
        )
    if config.shard is None:
        return rosters.among(config) if config.has_patterns else config
    ours = rosters.in_shard(config.shard)
    if not ours.logs.options and not ours.topics.options:
        log.warning("no log of the configuration falls into shard %s", config.shard)
    return ours.among(config)


def _found_at_start(config: Config, *, available_now: bool) -> Rosters:
    held = logs_held(config)
    rosters = Rosters.of(config, held)
    for one in (rosters.logs, rosters.topics):
        for contested in one.contested.values():
            raise contested
        for text, unasked in one.unasked.items():
            is_idle = not (rosters.logs.options or rosters.topics.options)
            if available_now or is_idle or isinstance(unasked, ConfigurationError):
                raise unasked
            log.warning("cannot list %s; the job goes on with what the replica has of it: %s", text, unasked)
    return Rosters(
        _for_job(rosters.logs, held, available_now=available_now),
        _for_job(rosters.topics, held, available_now=available_now),
    )


def _for_job(roster: Roster[Options], held: Mapping[LogId, bool], *, available_now: bool) -> Roster[Options]:
    left = roster.unlisted if available_now else frozenset()
    for log_id in sorted(left):
        log.warning("%s: no server lists it any more; this run leaves it out, and its replica stays as it is", log_id)
    begun = {pattern for log_id, pattern in roster.found_by.items() if held.get(log_id)}
    options = {
        log_id: from_oldest(one) if not held.get(log_id) and roster.found_by.get(log_id) in begun else one
        for log_id, one in roster.options.items()
        if log_id not in left
    }
    return replace(roster, options=options)


def from_oldest(options: Options) -> Options:
    """`options` of a log that a pattern has found later than others: it begins at its oldest record."""
    return options.model_copy(update={"starting_offset": EARLIEST})


def logs_held(config: Config) -> dict[LogId, bool]:
    """The logs and topics in the tables that patterns of `config` may match, each with whether it has a position.

    Without one, a job has claimed it and was ended before it committed anything. Raises ReplicaError.
    """
    held = _logs_held(config.warehouse) if config.clusters else {}
    if any(one.is_pattern for one in config.topics):
        for topic, states in topics_held(config.warehouse).items():
            held[topic] = any(one.offset is not None for one in states.values())
    return held


def _logs_held(warehouse: str) -> dict[LogId, bool]:
    version = newest(LOG.path(absolute(warehouse)))
    domains = {} if version is None else version.domains()
    states = {log_id: state_in(domains.get, log_id) for log_id in logs_in(domains)}
    return {log_id: state is not None and state.offset is not None for log_id, state in states.items()}
