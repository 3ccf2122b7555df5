"""Tables of a configuration that name several logs at once: ``[[logs]]`` with `cluster`, and ``[[topics]]``.

A log for each broker name of a RocketMQ cluster::

    cluster = "DefaultCluster"          as the brokers call it: brokerClusterName
    name_server = "host:port"           several joined by ;
    include = ["broker-.*"]             by default all; regular expressions for whole broker names
    exclude = ["broker-test-.*"]        by default none

All other keys are those of `ReadOptions`, and hold for each log. With `controllers` these are asked for the masters;
the name servers still list the brokers.

The Kafka topics that a job replicates, by the id of one, by their names, or by a pattern::

    id = "kafka/<cluster>/<topic>"                      one
    cluster = "<cluster>", topics = ["a", "b"]          several, by their names
    cluster = "<cluster>", pattern = "orders-.*"        those whose whole name matches, when the brokers are asked;
                                                        with exclude = ["…"] not those that match one of these

All other keys are those of `ReplicatedTopicOptions`, and hold for each topic of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from sources.bounds import EARLIEST, LATEST
from sources.discovery import Named, NamePattern
from sources.errors import ConfigurationError
from sources.kafka.discovery import TopicPattern, topic_id
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import ReadOptions, addresses, known_keys, parse_options
from sources.rocketmq.discovery import BrokerCluster

_CLUSTER_BY: Final = ("cluster", "include", "exclude")
_OF_ONE: Final = ("id", "master", "remoting", "path")
_OF_DISTER: Final = ("peers", "max_entries_per_trigger", "check_and_fix")
CLUSTER_KEYS: Final = (*_CLUSTER_BY, *(key for key in ReadOptions.model_fields if key not in (*_OF_ONE, *_OF_DISTER)))
_ANY_BROKER: Final = "rocketmq/any"  # stands for a log where only a pattern is known
TOPICS_BY: Final = ("id", "cluster", "topics", "pattern", "exclude")
NOT_IN_A_TABLE: Final = {
    "shard": "logtwin replicate --shard takes a share of all that the configuration names",
    "ending_offset": "a replica has no end; logtwin replicate --available-now ends where the topic does",
}
TABLE_KEYS: Final = (
    *TOPICS_BY,
    *(key for key in ReplicatedTopicOptions.model_fields if key not in (*TOPICS_BY, *NOT_IN_A_TABLE)),
)
Topics: TypeAlias = Named[ReplicatedTopicOptions] | TopicPattern
"""One ``[[topics]]`` table."""
_ANY_TOPIC: Final = "any"  # stands for a topic where only a pattern is known


@contextmanager
def at(where: str) -> Iterator[None]:
    """Add `where`, the table, to errors that do not name it."""
    try:
        yield
    except ConfigurationError as error:
        if error.problem.startswith(where):
            raise
        raise ConfigurationError(
            f"{where}: {error.problem}", expected=error.expected, found=error.found, hint=error.hint
        ) from error


def name_pattern(given: Mapping[str, object], include: str) -> NamePattern:
    """The pattern of the keys `include` and ``exclude``, lists of regular expressions. Raises ConfigurationError."""
    texts = {key: given[key] for key in (include, "exclude") if key in given}
    for key, value in texts.items():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigurationError(
                f"{key} is not usable", expected='a list of regular expressions: ["…"]', found=repr(value)
            )
    found = {key: tuple(map(str, value)) for key, value in texts.items() if isinstance(value, list)}
    for key, patterns in found.items():
        try:
            NamePattern(include=patterns)
        except ValueError as error:
            raise ConfigurationError(f"{key} is not usable", expected=error) from error
    return NamePattern(include=found.get(include, (".*",)), exclude=found.get("exclude", ()))


def parsed_cluster(given: Mapping[str, Any], *, where: str) -> BrokerCluster:
    """Make a table's entry from parsed TOML. Raises ConfigurationError, which names `where` and the key."""
    # Imported here, so that only jobs with clusters load the whole of RocketMQ's side.
    from sources.registry import remoting_security

    for key in known_keys(given, (*_CLUSTER_BY, *ReadOptions.model_fields), where=where):
        if key in (*_OF_ONE, *_OF_DISTER):
            raise ConfigurationError(
                f"{where}: {key} cannot be given with cluster",
                expected="keys that hold for every log of the cluster",
                found=key,
                hint="Give the log a [[logs]] table of its own, which wins." if key in _OF_ONE else "Remove it.",
            )
    values = known_keys(given, CLUSTER_KEYS, where=where)
    which: dict[str, Any] = {key: values.pop(key) for key in _CLUSTER_BY if key in values}
    cluster = which["cluster"]
    if not isinstance(cluster, str) or not cluster:
        raise ConfigurationError(f"{where}: cluster is not usable", expected='a name: "…"', found=repr(cluster))
    with at(where):
        options = parse_options(ReadOptions, {**values, "id": _ANY_BROKER}, where=where)
        name_servers = addresses(options.name_server)
        if not name_servers:
            raise ConfigurationError(
                "the key 'name_server' is missing", hint='Add name_server = "host:port": it lists the brokers.'
            )
        return BrokerCluster(
            cluster=cluster,
            pattern=name_pattern(which, "include"),
            name_servers=name_servers,
            # a log has one way to its master
            options=options.model_copy(update={"name_server": None}) if options.controllers else options,
            security=remoting_security(options),
        )


def parsed_topics(given: Mapping[str, Any], *, where: str) -> Topics:
    """Make a table's entry from parsed TOML. Raises ConfigurationError, which names `where` and the key."""
    for key, why in NOT_IN_A_TABLE.items():
        if key in known_keys(given, (*TABLE_KEYS, *NOT_IN_A_TABLE), where=where):
            raise ConfigurationError(f"{where}: {key} cannot be given", found=key, hint=f"Remove it: {why}.")
    values = known_keys(given, TABLE_KEYS, where=where)
    which = {key: values.pop(key) for key in TOPICS_BY if key in values}
    _check_start(values.get("starting_offset", EARLIEST), where)
    with at(where):
        match which:
            case {"id": str() as text, **others} if not others:
                cluster, _, topic = text.removeprefix("kafka/").partition("/")
                log_id = topic_id(cluster, topic)
                if str(log_id) != text:
                    raise ConfigurationError("this names no topic", expected="kafka/<cluster>/<topic>", found=text)
                return Named({log_id: _options(log_id, values, where)})
            case {"cluster": str() as cluster, "topics": [_, *_] as topics, **others} if not others:
                log_ids = [topic_id(cluster, str(topic)) for topic in topics]
                return Named({log_id: _options(log_id, values, where) for log_id in log_ids})
            case {"cluster": str() as cluster, "pattern": str() as pattern, **others} if not others.keys() - {
                "exclude"
            }:
                names = name_pattern({"pattern": [pattern], "exclude": others.get("exclude", [])}, "pattern")
                options = _options(topic_id(cluster, _ANY_TOPIC), values, where)
                return TopicPattern(cluster=cluster, pattern=names, options=options)
    raise ConfigurationError(
        f"{where}: it is not clear which topics are meant",
        expected='id = "kafka/<cluster>/<topic>"; or cluster with topics = ["…"], or with pattern = "…", and perhaps '
        'exclude = ["…"]',
        found=", ".join(f"{key} = {value!r}" for key, value in which.items()) or "none of these keys",
    )


def _check_start(given: object, where: str) -> None:
    """Allow only the earliest and the latest offset: the replica itself keeps the positions after that."""
    if given not in (EARLIEST, LATEST):
        raise ConfigurationError(
            f"{where}: starting_offset is not usable", expected=f"{EARLIEST} or {LATEST}", found=repr(given)
        )


def _options(log_id: LogId, values: Mapping[str, Any], where: str) -> ReplicatedTopicOptions:
    options = parse_options(ReplicatedTopicOptions, {**values, "id": str(log_id)}, where=where)
    options.settings()
    return options
