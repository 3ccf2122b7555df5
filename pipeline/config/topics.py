"""``[[topics]]``: the Kafka topics that a job replicates, by the id of one, by their names, or by a pattern.

    id = "kafka/<cluster>/<topic>"                      one
    cluster = "<cluster>", topics = ["a", "b"]          several, by their names
    cluster = "<cluster>", pattern = "orders-.*"        those whose whole name matches, when the brokers are asked

All other keys are those of `ReplicatedTopicOptions`, and hold for each topic of the table. Only `existing_topics` and
`first_contact` connect to brokers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from sources.errors import ConfigurationError, LogtwinError, NobodyListens
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import EARLIEST, LATEST, known_keys, parse_options

WHICH: Final = ("id", "cluster", "topics", "pattern")
NOT_IN_A_TABLE: Final = {
    "ending_offset": "a replica has no end; logtwin replicate --available-now ends where the topic does",
}
TABLE_KEYS: Final = (
    *WHICH,
    *(key for key in ReplicatedTopicOptions.model_fields if key not in (*WHICH, *NOT_IN_A_TABLE)),
)

_ANY: Final = "any"  # stands for a topic where only a pattern is known

log = logging.getLogger(__name__)


class TopicsConfig(BaseModel):
    """One ``[[topics]]`` table. It has either `topics` or a `pattern`; `options` hold for each topic, except the id."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    cluster: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    options: ReplicatedTopicOptions

    @classmethod
    def parse(cls, given: Mapping[str, Any], *, where: str) -> Self:
        """Make it from parsed TOML. Raises ConfigurationError, which names `where` and the key."""
        for key, why in NOT_IN_A_TABLE.items():
            if key in known_keys(given, (*TABLE_KEYS, *NOT_IN_A_TABLE), where=where):
                raise ConfigurationError(f"{where}: {key} cannot be given", found=key, hint=f"Remove it: {why}.")
        values = known_keys(given, TABLE_KEYS, where=where)
        cluster, topics, pattern = _which({key: values.pop(key) for key in WHICH if key in values}, where)
        _check_start(values.get("starting_offset", EARLIEST), where)
        options = [_options(cluster, topic, values, where) for topic in topics or (_ANY,)]
        return cls(cluster=cluster, topics=topics, pattern=pattern, options=options[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The log ids of its topics; with a pattern, one id that has the pattern in place of the topic."""
        return tuple(f"kafka/{self.cluster}/{one}" for one in self.topics or (self.pattern,))

    def is_of(self, topic: LogId) -> bool:
        """Whether `topic` is a topic of this table's cluster."""
        return topic.kind == "kafka" and topic.name.startswith(f"{self.cluster}/")

    def among(self, existing: Iterable[str]) -> tuple[ReplicatedTopicOptions, ...]:
        """Its topics; with a pattern, the matching ones of the cluster's `existing` topics.

        Raises ConfigurationError.
        """
        names = self.topics if self.pattern is None else (name for name in existing if re.fullmatch(self.pattern, name))
        return tuple(self._of(name) for name in names)

    def only(self, log_id: str) -> Self | None:
        """A copy with the topic `log_id` only; None if it does not have that topic."""
        cluster, _, name = log_id.removeprefix("kafka/").partition("/")
        chosen = self.among([name]) if cluster == self.cluster else ()
        if log_id not in [options.id for options in chosen]:
            return None
        return self.model_copy(update={"topics": (name,), "pattern": None})

    def _of(self, topic: str) -> ReplicatedTopicOptions:
        return self.options.model_copy(update={"id": _topic_id(self.cluster, topic, "[[topics]]")})


def expanded(
    tables: Iterable[TopicsConfig], existing: Callable[[TopicsConfig], Iterable[str]]
) -> tuple[ReplicatedTopicOptions, ...]:
    """The topics of all tables. For a table with a pattern, `existing` returns the topics of its cluster.

    Raises ConfigurationError if two tables have the same topic, and what `existing` raises.
    """
    found = [options for one in tables for options in one.among(existing(one) if one.pattern is not None else ())]
    ids = [options.id for options in found]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ConfigurationError(
            "a topic is in two [[topics]] tables",
            expected="each topic in one",
            found=", ".join(twice),
            hint='A pattern can leave a name out: pattern = "(?!orders-test$)orders-.*".',
        )
    return tuple(found)


def existing_topics(table: TopicsConfig) -> list[str]:
    """Ask the brokers for the topics that match. Raises MasterUnreachable, MasterSilent, MasterRefused."""
    # Imported here, so that only jobs with topics load the Kafka client.
    from sources.kafka.cluster.connection import connected
    from sources.kafka.cluster.topics import topics_matching

    with connected(table.options.settings()) as cluster:
        found = [topic.name for topic in topics_matching(cluster, table.pattern or "")]
    if not found:
        log.warning("cluster %s has no topic that matches %r", table.cluster, table.pattern)
    return found


def first_contact(table: TopicsConfig) -> None:
    """Connect once. Raises NobodyListens if none of the table's servers listens; other errors are only logged.

    The first real request reports those.
    """
    # Imported here, so that only jobs with topics load the Kafka client.
    from sources.kafka.cluster.connection import connected

    try:
        with connected(table.options.settings()):
            pass
    except NobodyListens:
        raise
    except LogtwinError as error:
        log.debug("the first contact failed: %s", error)


def _which(given: Mapping[str, Any], where: str) -> tuple[str, tuple[str, ...], str | None]:
    """The cluster, the topics and the pattern that `given` names."""
    match given:
        case {"id": str() as log_id, **others} if not others:
            cluster, _, topic = log_id.removeprefix("kafka/").partition("/")
            if log_id != _topic_id(cluster, topic, where):
                raise _no_topic(log_id, where)
            return cluster, (topic,), None
        case {"cluster": str() as cluster, "topics": [_, *_] as topics, **others} if not others:
            return cluster, tuple(map(str, topics)), None
        case {"cluster": str() as cluster, "pattern": str() as pattern, **others} if not others:
            _check_pattern(pattern, where)
            return cluster, (), pattern
    raise ConfigurationError(
        f"{where}: it is not clear which topics are meant",
        expected='id = "kafka/<cluster>/<topic>"; or cluster with topics = ["…"], or with pattern = "…"',
        found=", ".join(f"{key} = {value!r}" for key, value in given.items()) or "none of these keys",
    )


def _topic_id(cluster: str, topic: str, where: str) -> str:
    text = f"kafka/{cluster}/{topic}"
    try:
        log_id = LogId.parse(text)
    except ValueError:
        raise _no_topic(text, where) from None
    if log_id.name.count("/") != 1:
        raise _no_topic(text, where)
    return text


def _no_topic(text: str, where: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: this names no topic", expected="kafka/<cluster>/<topic>", found=text)


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f"{where}: pattern is no regular expression", expected=str(error), found=repr(pattern)
        ) from error


def _check_start(given: object, where: str) -> None:
    """Only the earliest and the latest offset are allowed: the replica itself keeps the positions after that."""
    if given not in (EARLIEST, LATEST):
        raise ConfigurationError(
            f"{where}: starting_offset is not usable", expected=f"{EARLIEST} or {LATEST}", found=repr(given)
        )


def _options(cluster: str, topic: str, values: Mapping[str, Any], where: str) -> ReplicatedTopicOptions:
    given = {**values, "id": _topic_id(cluster, topic, where)}
    try:
        options = parse_options(ReplicatedTopicOptions, given, where=where)
        options.settings()
    except ConfigurationError as error:
        if error.problem.startswith(where):
            raise
        raise ConfigurationError(
            f"{where}: {error.problem}", expected=error.expected, found=error.found, hint=error.hint
        ) from error
    return options
