"""A topic's partition as a master log (`sources.master.MasterLog`), read by `sources.kafka.reader`.

Offsets count records, but some have none: compaction removed them, or transactions left them behind. So a range is what
the leader was asked for and has answered. The master's own bytes cannot be rebuilt. What is compared instead are the
canonical bytes of the records (`sources.kafka.format.columns`), which depend on nothing else. A replica knows the
topic's id and the leader epoch before its position (`Known`); the leader itself compares both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.errors import ConfigurationError, naming
from sources.kafka.format.columns import UNLOCATED_SCHEMA, canonical, canonical_lengths
from sources.kafka.options import TopicOptions
from sources.kafka.reader import RECORD_BYTES, KafkaReader
from sources.kafka.session import PartitionSession
from sources.kafka.topic import KafkaTopic, open_topic
from sources.master import NOTHING_KNOWN, Chunk, Damage, Known, MasterView, Session
from sources.master_topic import partition_log, topic_and_number
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange
from sources.reading import WantedSplit, alone


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLog:
    """Partition `number` of `topic`. For `patience_s` see `MasterLog.hurried`."""

    topic: KafkaTopic
    number: int
    known: Known = NOTHING_KNOWN
    patience_s: float | None = None

    @property
    def log_id(self) -> LogId:
        return partition_log(self.topic.log_id, self.number)

    def check(self, *, is_replica: bool = True) -> None:
        """Check the topic (`KafkaTopic.check`). Mere readers mislead nobody, so for them there is nothing to check."""
        if is_replica:
            self.topic.check()

    def counted_for_s(self) -> None:
        """Return None: a group is one, however many connections it has."""

    def is_waited_for(self) -> bool:
        """Return False: no producer waits for a consumer group."""
        return False

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        held = self.topic.bounds(self._topic_id).held
        if self.number not in held:
            raise ConfigurationError(
                "the topic has no such partition", log=self.log_id, expected=f"one of {len(held)}", found=self.number
            )
        return held[self.number]

    @property
    def place(self) -> str:
        return self.topic.settings.servers[0] if len(self.topic.settings.servers) == 1 else str(self.topic.cluster)

    @property
    def role(self) -> str:
        return self.topic.role

    def look(self) -> MasterView:
        return MasterView(role=None, bounds=self.bounds(), retention=None)

    @property
    def has_free_offsets(self) -> bool:
        return True

    def size_bytes(self, wanted: OffsetRange) -> int:
        return wanted.size * RECORD_BYTES

    @property
    def cuts_at_records(self) -> bool:
        """True: reading may begin at any offset."""
        return True

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        return min(offset, maximum)

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        return min(maximum, Offset(start + max(1, max_bytes // RECORD_BYTES)))

    @property
    def split_bytes(self) -> int:
        return self.topic.split_offsets * RECORD_BYTES

    @property
    def cuts_batches(self) -> bool:
        return True

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        return wanted.in_pieces(self.topic.split_offsets)

    def identity(self) -> str:
        return str(self._topic_id or self.topic.bounds().topic_id)

    def continuing(self, known: Known) -> KafkaLog:
        return replace(self, known=known)

    def parting(self) -> None:
        """Return None: the leader itself compares the epoch that a fetch names (`Known.mark`)."""

    def hurried(self, patience_s: float) -> KafkaLog:
        return replace(self, patience_s=patience_s)

    @property
    def reader(self) -> KafkaReader:
        return self.topic.reader(self.patience_s)

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        """Implement the contract; every chunk is of one fetch, and reading may end after any of them."""
        return alone(self.reader, WantedSplit(self.log_id, owned, known=self.known))

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        """Yield the canonical bytes of the records in `wanted`."""
        for piece in alone(self.reader, WantedSplit(self.log_id, wanted, known=Known(self.known.identity))):
            if isinstance(piece, Damage):
                raise piece.error
            yield piece.raw

    def drops_records(self) -> bool:
        """Whether the topic that has the name now is compacted."""
        return self.topic.is_compacted()

    @property
    def restored_from(self) -> Sequence[str]:
        return tuple(UNLOCATED_SCHEMA.names)

    def restore(self, records: pa.RecordBatch) -> bytes:
        return canonical(records)

    @property
    def measured_by(self) -> Sequence[str]:
        return ("key", "value", "headers")

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return canonical_lengths(records)

    @property
    def proves_all(self) -> bool:
        return False

    @property
    def overrules(self) -> bool:
        return False

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> None:
        """Return None: the checksums of the ledger are compared."""

    @property
    def keyed_state(self) -> None:
        """None: a compacted topic is a map, but of any bytes."""

    def metadata(self) -> Iterator[FetchedMetadata]:
        """Yield nothing: all metadata concerns the topic (`sources.kafka.metadata`)."""
        return iter(())

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        """Return a session of its own. Partitions of a topic that are replicated together share one instead."""
        return PartitionSession(self.topic.open_session(), self.number)

    def acknowledged_by_master(self) -> Offset | None:
        with naming(self.log_id):
            return self.topic.committed().get(self.number)

    @property
    def _topic_id(self) -> uuid.UUID | None:
        return None if self.known.identity is None else uuid.UUID(self.known.identity)


def open_partition(options: TopicOptions, log_id: LogId) -> KafkaLog:
    """Return the partition of `options`' topic that `log_id` names. Raises ConfigurationError; connects to nothing."""
    return KafkaLog(topic=open_topic(options), number=topic_and_number(log_id)[1])
