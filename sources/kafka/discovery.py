"""The topics of a Kafka cluster whose names match a pattern."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from sources.discovery import NamePattern, Warn
from sources.errors import ConfigurationError
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId

log = logging.getLogger(__name__)


def topic_id(cluster: str, topic: str) -> LogId:
    """The id of a topic. Raises ConfigurationError if there can be no such topic."""
    text = f"kafka/{cluster}/{topic}"
    try:
        log_id = LogId.parse(text)
    except ValueError:
        log_id = None
    if log_id is None or log_id.name.count("/") != 1:
        raise ConfigurationError("this names no topic", expected="kafka/<cluster>/<topic>", found=text)
    return log_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPattern:
    """The topics of `cluster` whose names match, as its brokers list them; never Kafka's internal ones.

    `options` hold for each topic, except the id.
    """

    cluster: str
    pattern: NamePattern
    options: ReplicatedTopicOptions

    @property
    def is_pattern(self) -> bool:
        return True

    @property
    def names(self) -> tuple[str, ...]:
        return (f"kafka/{self.cluster}/{self.pattern}",)

    def find(self, warn: Warn = log.warning, /) -> Mapping[LogId, ReplicatedTopicOptions]:
        # Imported here, so that only jobs with topics load the Kafka client.
        from sources.kafka.cluster.connection import connected
        from sources.kafka.cluster.topics import topics_matching

        with connected(self.options.settings()) as cluster:
            found = [topic_id(self.cluster, topic.name) for topic in topics_matching(cluster, self.pattern.matches)]
        if not found:
            warn("cluster %s has no topic that matches %r", self.cluster, str(self.pattern))
        return {log_id: self._of(log_id) for log_id in found}

    def options_of(self, log_id: LogId) -> ReplicatedTopicOptions | None:
        cluster, _, topic = log_id.name.partition("/")
        is_ours = (log_id.kind, cluster) == ("kafka", self.cluster) and self.pattern.matches(topic)
        return self._of(log_id) if is_ours else None

    def only(self, log_id: LogId) -> Self:
        return replace(self, pattern=self.pattern.only(log_id.name.partition("/")[2]))

    def _of(self, log_id: LogId) -> ReplicatedTopicOptions:
        return self.options.model_copy(update={"id": str(log_id)})
