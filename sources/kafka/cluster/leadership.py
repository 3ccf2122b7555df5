"""The leader of one partition, followed through elections and restarts.

What must hold: whoever answers leads the partition of the very topic that was asked for. After each error that a retry
can help, the connections are closed and the leader is looked up again, including the check of the topic's id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from sources.errors import Recreated
from sources.kafka.cluster.connection import Cluster, connected
from sources.kafka.cluster.retries import ask_again
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.cluster.topics import Leader, Topic, TopicPartition, topics_named

T = TypeVar("T")


class Leadership:
    """The leader of `tp`. A question that it cannot answer now is asked again until `patience_ms` have passed."""

    def __init__(self, settings: KafkaSettings, tp: TopicPartition, topic_id: uuid.UUID, patience_ms: int) -> None:
        self._settings = settings
        self._tp = tp
        self._topic_id = topic_id
        self._patience_ms = patience_ms
        self._open = ExitStack()
        self._found: tuple[Cluster, Leader] | None = None

    def ask(self, question: Callable[[Cluster, Leader], T]) -> T:
        """Return the answer of the leader.

        Raises Recreated, ConfigurationError without such a topic or partition, and what `question` raises. An error
        that a retry can help is raised only after `patience_ms`.
        """
        return ask_again(lambda: question(*self._leader()), patience_ms=self._patience_ms, before_again=self.close)

    def close(self) -> None:
        """Close the connections. Idempotent; the next question makes new ones."""
        self._found = None
        self._open.close()

    def _leader(self) -> tuple[Cluster, Leader]:
        if self._found is None:
            cluster = self._open.enter_context(connected(self._settings))
            topic = topics_named(cluster, [self._tp.topic])[0]
            check_same(topic, self._topic_id)
            self._found = cluster, topic.leader(self._tp.partition)
        return self._found


@contextmanager
def following(
    settings: KafkaSettings, tp: TopicPartition, topic_id: uuid.UUID, patience_ms: int
) -> Iterator[Leadership]:
    """Give the leader of `tp`, connected when it is first asked; closed at the end."""
    leadership = Leadership(settings, tp, topic_id, patience_ms)
    try:
        yield leadership
    finally:
        leadership.close()


def check_same(topic: Topic, topic_id: uuid.UUID) -> None:
    """Raise Recreated if `topic` has another id than `topic_id`."""
    if topic.id != topic_id:
        raise Recreated(
            f"topic {topic.name} was deleted and created again: it is another one of the same name",
            expected=f"topic id {topic_id}",
            found=topic.id,
            hint="What was replicated is all that is left of the old one, and stays as it is. Replicate the new one "
            "under another name of the cluster.",
        )
