"""A topic of a cluster as a master: what it holds now, its partitions as logs, and the group that shows its progress.

Picklable. Connections stay open between calls, but in `sources.kafka.cluster.connection`, not here; a session
has a connection of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, TypeVar

from sources.bounds import check_position
from sources.errors import LogtwinError, NobodyListens, naming
from sources.kafka.cluster.connection import Cluster, ask_again, has_answered, kept, may_pass
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.leaders import bounds, bounds_of_each, epoch_ends
from sources.kafka.cluster.settings import Isolation, KafkaSettings
from sources.kafka.cluster.topics import (
    Topic,
    TopicPartition,
    check_same,
    check_topic_rights,
    is_compacted,
    topics_named,
)
from sources.kafka.epochs import EpochEnd, check_history
from sources.kafka.log import TRAITS, KafkaLog
from sources.kafka.metadata import fetched_and_told
from sources.kafka.options import ReplicatedTopicOptions, TopicOptions
from sources.kafka.reader import MIB, KafkaReader
from sources.kafka.session import GroupSession
from sources.kafka.topic_offsets import TopicBounds
from sources.master import Holding, Known, LogQuery, MasterView, Session, Traits
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange, partition_log, topic_and_number
from sources.shards import Shard
from sources.sole_log import SilentSession

T = TypeVar("T")

MIN_PATIENCE_MS: Final = 1000
"""A leader itself may wait half a second for something to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """Topic `topic` of the cluster that the operator calls `cluster`: a `sources.master.Master`.

    For the limits see `KafkaReader`. `group` is the consumer group that is told how far a replica is; with None
    nobody is told. With `shard` the topic's logs are the partitions in that share, and no others are asked for.
    """

    settings: KafkaSettings
    cluster: str
    topic: str
    isolation: Isolation = Isolation.READ_COMMITTED
    chunk_bytes: int = 8 * MIB
    split_offsets: int = 100_000
    patience_ms: int = 30_000
    past_damage: bool = False
    group: str | None = None
    shard: Shard | None = None

    @property
    def id(self) -> LogId:
        """The log id of the topic; that of a partition ends with its number."""
        return LogId("kafka", f"{self.cluster}/{self.topic}")

    @property
    def traits(self) -> Traits:
        return TRAITS

    @property
    def address(self) -> str:
        return ",".join(self.settings.servers)

    @property
    def role(self) -> str:
        """What a replica is to the brokers: a "consumer", whose group tells them, or a "reader"."""
        return "reader" if self.group is None else "consumer"

    def log(self, log_id: LogId) -> KafkaLog:
        return KafkaLog(topic=self, number=topic_and_number(log_id)[1])

    def counted_for_s(self) -> None:
        """Return None: a group is one, however many connections it has."""

    def is_waited_for(self) -> bool:
        """Return False: no producer waits for a consumer group."""
        return False

    def check(self, *, is_replica: bool = True) -> None:
        """Check that nobody else consumes with the group. Mere readers mislead nobody.

        Raises ConfigurationError naming who does, and as `bounds` does.
        """
        if is_replica and self.group is not None:
            self._ask(ConsumerGroup(self.group, patience_ms=0).check)

    def check_rights(self) -> None:
        """Check our rights on the topic and on the group, as the brokers say them.

        Raises ConfigurationError, and as `bounds` does.
        """
        self._ask(partial(check_topic_rights, topic=self.topic))
        if self.group is not None:
            self._ask(ConsumerGroup(self.group, patience_ms=0).check_rights)

    def bounds(self, known: uuid.UUID | None = None) -> TopicBounds:
        """Return the topic's id and the bounds of each partition, over one connection.

        `known` is the id that the topic must have. Raises Recreated if another topic has the name now,
        ConfigurationError (no such topic, not allowed), MasterUnreachable, MasterSilent, MasterRefused,
        ProtocolViolation. An error that a retry can help is raised only after `patience_ms`.
        """
        return self._ask(partial(self._bounds, known))

    def poll(self, asked: Mapping[LogId, LogQuery]) -> dict[LogId, Holding | LogtwinError]:
        """Implement the contract. All of the topic's partitions have one identity: the topic's id."""
        if not asked:
            found = self.bounds()
            return {self._log_id(at): Holding(held, str(found.topic_id)) for at, held in found.held.items()}
        return self._ask(partial(self._poll, _topic_id(asked)))

    def view(self) -> MasterView:
        """Implement the contract with the sums over the partitions. Retention is configured, and of each partition."""
        held = self.bounds().held.values()
        start, end = sum(one.start for one in held), sum(one.end for one in held)
        return MasterView(role=None, bounds=OffsetRange(Offset(start), Offset(end)), retention=None)

    def check_history(self, known: Mapping[LogId, Known]) -> dict[LogId, LogtwinError]:
        """Implement the contract with one connection and a few requests to each leader."""
        topic_id = _topic_id(known)
        return {} if topic_id is None else self._ask(partial(self._without_history, topic_id, known))

    def acknowledged_by_master(self) -> dict[LogId, Offset]:
        """Return what the group has committed; nothing without a group. Raises as `bounds` does."""
        return {} if self.group is None else self._ask(self._committed)

    def metadata(self) -> Iterator[FetchedMetadata]:
        return fetched_and_told(self)

    def is_compacted(self) -> bool:
        """Whether the topic is compacted, by its cleanup.policy now. Raises as `bounds` does."""
        return self._ask(partial(is_compacted, topic=self.topic))

    def hurried(self, patience_s: float) -> KafkaTopic:
        """Return the same topic, which waits for nothing longer than about `patience_s`."""
        most_ms = max(MIN_PATIENCE_MS, int(patience_s * 1000))
        settings = replace(
            self.settings,
            connect_timeout_ms=min(self.settings.connect_timeout_ms, most_ms),
            request_timeout_ms=min(self.settings.request_timeout_ms, most_ms),
            connect_attempts=1,
        )
        return replace(self, settings=settings, patience_ms=min(self.patience_ms, most_ms))

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        """Return a session that commits to the group. Its brokers wait for nobody, so it proves nothing of its own."""
        if self.group is None:
            return SilentSession()
        return GroupSession(self.settings, self.group, self.topic, self.id)

    def reader(self, patience_s: float | None = None) -> KafkaReader:
        """Return the reader of its partitions, which all topics share that are read in the same way."""
        return _reader(self, patience_s)

    def _ask(self, question: Callable[[Cluster], T]) -> T:
        """Return the answer to `question`, asking again over new connections if a retry can help."""

        def connect_and_ask() -> T:
            with kept(self.settings) as cluster:
                return question(cluster)

        def is_worth(error: BaseException) -> bool:
            # Servers that never answered are more likely a mistake than a restart: tell whoever starts the job.
            return may_pass(error) and (not isinstance(error, NobodyListens) or has_answered(self.settings))

        with naming(self.id):
            return ask_again(connect_and_ask, patience_ms=self.patience_ms, is_worth=is_worth)

    def _bounds(self, known: uuid.UUID | None, cluster: Cluster) -> TopicBounds:
        topic = self._described(cluster, known)
        return TopicBounds(topic.id, bounds(cluster, topic, self.isolation, filter(self._is_ours, topic.leaders)))

    def _poll(self, known: uuid.UUID | None, cluster: Cluster) -> dict[LogId, Holding | LogtwinError]:
        """Raises as `bounds`, and if no partition has an answer."""
        topic = self._described(cluster, known)
        found = bounds_of_each(cluster, topic, self.isolation, filter(self._is_ours, topic.leaders))
        errors = [one for one in found.values() if isinstance(one, LogtwinError)]
        if errors and len(errors) == len(found):
            raise errors[0]
        return {
            self._log_id(at): one.at(self._log_id(at)) if isinstance(one, LogtwinError) else Holding(one, str(topic.id))
            for at, one in found.items()
        }

    def _without_history(
        self, topic_id: uuid.UUID, known: Mapping[LogId, Known], cluster: Cluster
    ) -> dict[LogId, LogtwinError]:
        """Return the error of each log whose history is not the `known` one, or cannot be compared with it.

        Raises as `bounds`, and if a retry can help all of them.
        """
        topic = self._described(cluster, topic_id)
        numbers = {topic_and_number(log_id)[1]: one for log_id, one in known.items()}
        held = bounds_of_each(cluster, topic, Isolation.READ_UNCOMMITTED, topic.leaders.keys() & numbers.keys())
        answered = {at: one for at, one in numbers.items() if isinstance(held.get(at), OffsetRange)}
        ends = epoch_ends(cluster, topic, {at: one.mark for at, one in answered.items() if one.mark is not None})
        found = {at: _history_error(one, held.get(at), ends.get(at), self._log_id(at)) for at, one in numbers.items()}
        errors = {self._log_id(at): error.at(self._log_id(at)) for at, error in found.items() if error is not None}
        if len(errors) == len(known) and all(may_pass(one) for one in errors.values()):
            raise next(iter(errors.values()))
        return errors

    def _committed(self, cluster: Cluster) -> dict[LogId, Offset]:
        tps = [TopicPartition(self.topic, number) for number in self._described(cluster, None).leaders]
        found = ConsumerGroup(str(self.group), patience_ms=0).committed(cluster, tps)
        return {partition_log(self.id, tp.partition): at.offset for tp, at in found.items()}

    def _log_id(self, number: int) -> LogId:
        return partition_log(self.id, number)

    def _is_ours(self, number: int) -> bool:
        return self.shard is None or self.shard.has(self._log_id(number))

    def _described(self, cluster: Cluster, known: uuid.UUID | None) -> Topic:
        topic = topics_named(cluster, [self.topic])[0]
        if known is not None:
            check_same(topic, known)
        return topic


def _history_error(
    known: Known, bounds: OffsetRange | LogtwinError | None, end: EpochEnd | LogtwinError | None, log: LogId
) -> LogtwinError | None:
    """Return the error of a partition that has another history than the `known` one, by its leader's answers.

    `end` is that of the known epoch, if one is known.
    """
    if isinstance(bounds, LogtwinError):
        return bounds
    if isinstance(end, LogtwinError):
        return end
    try:
        at = known.offset or Offset(0)
        held = check_position(at, bounds, log=log)
        if end is not None:
            check_history(known.mark, at, end, held, log)
    except LogtwinError as error:
        return error
    return None


@lru_cache(maxsize=1024)
def _reader(topic: KafkaTopic, patience_s: float | None) -> KafkaReader:
    here = topic if patience_s is None else topic.hurried(patience_s)
    return KafkaReader(
        settings=here.settings,
        isolation=here.isolation,
        chunk_bytes=here.chunk_bytes,
        patience_ms=here.patience_ms,
        past_damage=here.past_damage,
        patience_s=patience_s,
    )


def _topic_id(logs: Mapping[LogId, LogQuery | Known]) -> uuid.UUID | None:
    """Return the id that the topic must have, by what is known of its partitions; all are of one topic."""
    found = next((one.identity for one in logs.values() if one.identity is not None), None)
    return None if found is None else uuid.UUID(found)


def open_topic(options: TopicOptions) -> KafkaTopic:
    """Return the topic that `options` describe, with its group if it is replicated.

    Raises ConfigurationError; connects to nothing.
    """
    return KafkaTopic(
        settings=options.settings(),
        cluster=options.cluster,
        topic=options.topic,
        isolation=options.isolation_level,
        chunk_bytes=options.chunk_bytes,
        split_offsets=options.split_offsets,
        past_damage=isinstance(options, ReplicatedTopicOptions) and options.on_loss == "record",
        group=(options.group or None) if isinstance(options, ReplicatedTopicOptions) else None,
        shard=options.shard if isinstance(options, ReplicatedTopicOptions) else None,
    )
