"""A configuration as it is now: its patterns replaced by the logs, topics and typed tables that they stand for.

What the tables hold and a pattern matches is a log of the configuration, even if no server lists it any more, or none
can be asked: a broker that left waits, and is not forgotten. Prepare the storage first (`pipeline.spark.session`).

An entry of many typed tables has a table of its own with a row for each table that its events are of. Those rows make
the entries of the others, and nothing else does: so a restart knows the same ones, and a kill loses none. What cannot
become a table is reported, and the others go on: it becomes one from the beginning of its log as soon as it can.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, TypeVar

from pipeline.config.configuration import Config
from pipeline.config.typed_tables import TypedTableConfig
from sinks.books.topic_states import topics_held
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in, state_in
from sinks.tables import LOG
from sinks.typed.found import folders, made_by, source_tables
from sinks.typed.source_tables import SourceTable
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
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Rosters:
    """The logs and topics that a configuration names at one moment."""

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
    """Let a log that a pattern has found later than others begin at its oldest record."""
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


@dataclass(frozen=True, slots=True)
class FoundTables:
    """`tables` are the entries of all typed tables. `flaws` say, by entry of many, what was found and has no table."""

    tables: tuple[TypedTableConfig, ...]
    flaws: Mapping[str, tuple[ConfigurationError, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    by: TypedTableConfig
    source: SourceTable
    entry: TypedTableConfig


def found_tables(config: Config) -> FoundTables:
    """The tables of `config`, without a JVM. Prepare the storage first. Raises ReplicaError, ConfigurationError."""
    if not any(one.is_of_many for one in config.tables):
        return FoundTables(config.tables)
    flaws: dict[str, list[ConfigurationError]] = {}
    alone: dict[str, list[TypedTableConfig]] = {}
    own = {one.table_name for one in config.tables}
    candidates = sorted(_candidates(config, flaws), key=lambda one: one.entry.name)
    for name, several in groupby(candidates, lambda one: one.entry.name):
        rivals = [*several]
        owner = None if name in own else _owner(config.warehouse, rivals)
        for one in rivals:
            if one is owner:
                alone.setdefault(one.by.name, []).append(one.entry)
            else:
                flaws.setdefault(one.by.name, []).append(_contested(one, rivals))
    found: list[TypedTableConfig] = []
    for entry in config.tables:
        made, left = _within_bound(config.warehouse, entry, alone.get(entry.name, []))
        found += [entry, *made]
        if left:
            flaws.setdefault(entry.name, []).append(_beyond(entry, left))
    return FoundTables(tuple(found), {name: tuple(several) for name, several in flaws.items()})


def _candidates(config: Config, flaws: dict[str, list[ConfigurationError]]) -> Iterator[_Candidate]:
    """Yield the tables that the entries of `config` would make; note in `flaws` those that cannot be made."""
    for by in config.tables:
        for source in source_tables(config.warehouse, by.table_name) if by.is_of_many else ():
            if by.wants(source):
                try:
                    yield _Candidate(by, source, by.of(source))
                except ConfigurationError as flaw:
                    flaws.setdefault(by.name, []).append(flaw)


def _owner(warehouse: str, rivals: Sequence[_Candidate]) -> _Candidate | None:
    """Find the owner of a name: if several claim it, the one by which the table was made."""
    if len(rivals) == 1:
        return rivals[0]
    made = made_by(warehouse, rivals[0].entry.name)
    return next((one for one in rivals if one.entry.definition().fingerprint == made), None)


def _contested(one: _Candidate, rivals: Sequence[_Candidate]) -> ConfigurationError:
    others = [f"{other.source} by {other.by.name}" for other in rivals if other is not one]
    return ConfigurationError(
        f"two typed tables cannot be called {one.entry.name}",
        expected=f"a name for {one.source} alone, by {one.by.name}",
        found=f"that of {', '.join(others) or 'another entry'}, too",
        hint="Give one an entry of its own, and leave it out here with exclude.",
    )


def _within_bound(
    warehouse: str, entry: TypedTableConfig, found: Sequence[TypedTableConfig]
) -> tuple[list[TypedTableConfig], list[TypedTableConfig]]:
    """The tables that `entry` makes: those that exist, and of the others the first ones; and those that are left."""
    if len(found) <= entry.max_tables:
        return [*found], []
    made = folders(warehouse)
    there = [one for one in found if one.name in made]
    others = [one for one in found if one.name not in made]
    room = max(0, entry.max_tables - len(there))
    return [*there, *others[:room]], others[room:]


def _beyond(entry: TypedTableConfig, left: Sequence[TypedTableConfig]) -> ConfigurationError:
    shown = ", ".join(one.name for one in left[:_SHOWN]) + (", …" if len(left) > _SHOWN else "")
    return ConfigurationError(
        f"the entry {entry.name} has found more tables than it may make",
        expected=f"max_tables = {entry.max_tables}",
        found=f"{len(left):,} more: {shown}",
        hint="Raise it, or leave some out with exclude. Nothing is lost: a table begins where its log does.",
    )
