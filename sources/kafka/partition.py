"""A topic's partition as a log: its bounds, how to read it in pieces, and its records by offset.

What must hold after reading a range [a, b): the leader was asked from a on, each request began where the answer before
it ended, and the last answer reached b. Offsets without a record are legal (compaction, and what transactions leave
behind) if a batch from the leader led past them. An empty answer leads nowhere: a leader that throttles or has not
caught up also returns nothing.

Leader epochs go along with offsets, so that a log that was cut and grew again is noticed (KIP-320). The epoch of an
offset is that of the batch before it or, if the leader has none there any more, that of the batch behind it. What was
read before the hole would not do: if its epoch ended inside the hole, that would look like a cut.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from sources.bounds import check_within
from sources.errors import ConfigurationError, CorruptRecord, MasterSilent, ProtocolViolation, UnprovenEnd, naming
from sources.kafka.bounds import bounds_at
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.fetch import FetchedBatches, fetch
from sources.kafka.cluster.leadership import Leadership, following
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.cluster.topics import Leader, TopicPartition
from sources.kafka.format.batches import DecodedBatches, damage_at, decode_sound
from sources.kafka.format.columns import canonical, located
from sources.kafka.isolation import Isolation
from sources.master import Chunk, Damage
from sources.offsets import LogId, Offset, OffsetRange, partition_log

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """Partition `partition` of the topic with id `topic_id`, in the cluster that the operator calls `cluster`.

    `chunk_bytes` is how much of the log is requested at once; a larger batch comes whole. `split_offsets` is how many
    offsets one task reads. An absent leader is waited for `patience_ms`. With `past_damage`, reading goes on behind a
    damaged batch.
    Raises ConfigurationError for names that cannot be part of a log id.
    """

    settings: KafkaSettings
    cluster: str
    topic: str
    topic_id: uuid.UUID
    partition: int
    isolation: Isolation = Isolation.READ_COMMITTED
    chunk_bytes: int = 8 * MIB
    split_offsets: int = 100_000
    patience_ms: int = 30_000
    past_damage: bool = False

    def __post_init__(self) -> None:
        try:
            LogId.parse(str(self.log_id))
        except ValueError as error:
            raise ConfigurationError(
                f"topic {self.topic!r} of cluster {self.cluster!r} cannot be replicated",
                expected="names of letters, digits, '-', '_' and '.', the first of which is no dot",
            ) from error

    @property
    def log_id(self) -> LogId:
        return partition_log(LogId("kafka", f"{self.cluster}/{self.topic}"), self.partition)

    def plan(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        """Cut `wanted` into consecutive pieces that tasks may read side by side."""
        return wanted.in_pieces(self.split_offsets)

    def read(self, owned: OffsetRange, *, after_epoch: int | None = None) -> Iterator[Chunk | Damage]:
        """Yield the records at the offsets `owned`, in order, in chunks that join and cover exactly `owned`.

        The chunk of a hole has no records. `after_epoch` is the leader epoch of what lies before `owned`, if known. The
        chunks' `raw` is made of their records (`columns.canonical`), so it is equal however the range is cut. Damage is
        one batch or more, or the part of them in `owned`, with all their bytes; it ends where a sound batch begins.

        Raises BelowMinimum, AboveMaximum, Rewritten, Recreated, CorruptRecord; UnprovenEnd for a damaged batch that no
        sound one follows yet; ConfigurationError (no such topic or partition, not allowed), MasterUnreachable,
        MasterSilent, MasterRefused, ProtocolViolation.
        """
        with naming(self.log_id), self._following() as leadership:
            at, epoch = owned.start, after_epoch
            while at < owned.end:
                piece = leadership.ask(partial(self._piece, owned.starting_at(at), epoch))
                if isinstance(piece, UnprovenEnd):
                    raise piece
                yield piece
                at, epoch = piece.covered.end, piece.mark if isinstance(piece, Chunk) else None

    def _following(self) -> AbstractContextManager[Leadership]:
        return following(self.settings, self._tp, self.topic_id, self.patience_ms)

    @property
    def _tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def _bounds(self, cluster: Cluster, leader: Leader) -> OffsetRange:
        return bounds_at(cluster, leader, self._tp, self.isolation)

    def _piece(
        self, wanted: OffsetRange, epoch: int | None, cluster: Cluster, leader: Leader
    ) -> Chunk | Damage | UnprovenEnd:
        """Return what one fetch gives of `wanted`, from its start on; UnprovenEnd is not asked for again."""
        fetched = fetch(
            cluster, leader, self._tp, wanted.start, topic_id=self.topic_id, max_bytes=self.chunk_bytes,
            isolation=self.isolation, last_epoch=epoch,
        )  # fmt: skip
        if not fetched.records:
            self._refuse_silence(wanted, fetched, cluster, leader)
        log_end = fetched.high_watermark
        decoded = decode_sound(fetched.records, wanted, fetched.aborted, self.isolation, log_end=log_end)
        if decoded.reached > wanted.start:
            return self._chunk(wanted, decoded)
        if decoded.error is None:
            raise ProtocolViolation("the leader gave no whole batch", offset=wanted.start)
        damage = damage_at(fetched.records, wanted, decoded, log_end)
        if damage is None and not self._goes_on(log_end, cluster, leader):
            return _unproven(decoded.error)
        if damage is None or not self.past_damage:
            raise decoded.error
        return damage

    def _goes_on(self, log_end: Offset, cluster: Cluster, leader: Leader) -> bool:
        """Whether the newest batch is sound: what is damaged before it is no end of the log."""
        newest = OffsetRange(Offset(log_end - 1), log_end)
        isolation = Isolation.READ_UNCOMMITTED
        fetched = fetch(
            cluster, leader, self._tp, newest.start, topic_id=self.topic_id, max_bytes=self.chunk_bytes,
            isolation=isolation,
        )  # fmt: skip
        decoded = decode_sound(fetched.records, newest, (), isolation, log_end=fetched.high_watermark)
        return decoded.error is None and decoded.reached > newest.start

    def _chunk(self, wanted: OffsetRange, decoded: DecodedBatches) -> Chunk:
        covered = OffsetRange(wanted.start, min(decoded.reached, wanted.end))
        records = located(decoded.records, self.topic, self.partition)
        return Chunk(covered, records, memoryview(canonical(records)), decoded.epoch)

    def _refuse_silence(
        self, wanted: OffsetRange, fetched: FetchedBatches, cluster: Cluster, leader: Leader
    ) -> NoReturn:
        check_within(wanted, self._bounds(cluster, leader), kind="kafka")
        raise MasterSilent(
            "the leader returns no records from here on, although its log goes on",
            offset=wanted.start,
            expected=f"batches up to {wanted.end}",
            found=f"none; high watermark {fetched.high_watermark}, last stable offset {fetched.last_stable}",
        )


def _unproven(error: CorruptRecord) -> UnprovenEnd:
    return UnprovenEnd(
        f"the newest batch is not sound: {error.problem}",
        offset=error.offset,
        expected=error.expected,
        found=error.found,
        hint="It is waited for until a sound batch follows it; then on_loss decides. A broker that recovers may cut it "
        "off, and another replica may have it whole: let that one lead.",
    )
