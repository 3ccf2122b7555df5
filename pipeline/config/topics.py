"""``[[topics]]``: the Kafka topics that a job replicates, by the id of one, by their names, or by a pattern.

    id = "kafka/<cluster>/<topic>"                      one
    cluster = "<cluster>", topics = ["a", "b"]          several, by their names
    cluster = "<cluster>", pattern = "orders-.*"        those whose whole name matches, when the brokers are asked;
                                                        with exclude = ["…"] not those that match one of these

All other keys are those of `ReplicatedTopicOptions`, and hold for each topic of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pipeline.config.patterns import at, name_pattern
from sources.bounds import EARLIEST, LATEST
from sources.discovery import Named
from sources.errors import ConfigurationError
from sources.kafka.discovery import TopicPattern, topic_id
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import known_keys, parse_options

WHICH: Final = ("id", "cluster", "topics", "pattern", "exclude")
NOT_IN_A_TABLE: Final = {
    "shard": "logtwin replicate --shard takes a share of all that the configuration names",
    "ending_offset": "a replica has no end; logtwin replicate --available-now ends where the topic does",
}
TABLE_KEYS: Final = (
    *WHICH,
    *(key for key in ReplicatedTopicOptions.model_fields if key not in (*WHICH, *NOT_IN_A_TABLE)),
)

Topics: TypeAlias = Named[ReplicatedTopicOptions] | TopicPattern
"""One ``[[topics]]`` table."""

_ANY: Final = "any"  # stands for a topic where only a pattern is known


def parsed_topics(given: Mapping[str, Any], *, where: str) -> Topics:
    """Make a table's entry from parsed TOML. Raises ConfigurationError, which names `where` and the key."""
    for key, why in NOT_IN_A_TABLE.items():
        if key in known_keys(given, (*TABLE_KEYS, *NOT_IN_A_TABLE), where=where):
            raise ConfigurationError(f"{where}: {key} cannot be given", found=key, hint=f"Remove it: {why}.")
    values = known_keys(given, TABLE_KEYS, where=where)
    which = {key: values.pop(key) for key in WHICH if key in values}
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
                options = _options(topic_id(cluster, _ANY), values, where)
                return TopicPattern(cluster=cluster, pattern=names, options=options)
    raise ConfigurationError(
        f"{where}: it is not clear which topics are meant",
        expected='id = "kafka/<cluster>/<topic>"; or cluster with topics = ["…"], or with pattern = "…", and perhaps '
        'exclude = ["…"]',
        found=", ".join(f"{key} = {value!r}" for key, value in which.items()) or "none of these keys",
    )


def _check_start(given: object, where: str) -> None:
    """Only the earliest and the latest offset are allowed: the replica itself keeps the positions after that."""
    if given not in (EARLIEST, LATEST):
        raise ConfigurationError(
            f"{where}: starting_offset is not usable", expected=f"{EARLIEST} or {LATEST}", found=repr(given)
        )


def _options(log_id: LogId, values: Mapping[str, Any], where: str) -> ReplicatedTopicOptions:
    options = parse_options(ReplicatedTopicOptions, {**values, "id": str(log_id)}, where=where)
    options.settings()
    return options
