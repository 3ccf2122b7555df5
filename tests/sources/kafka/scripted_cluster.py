"""A cluster that answers from a script, and the answers that real brokers would give."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import MetadataResponse

from sources.errors import LogtwinError
from sources.kafka.cluster.connection import Cluster
from tests.sources.kafka.batches import written

TOPIC_ID = uuid.UUID(int=7)
OTHER_ID = uuid.UUID(int=8)
NOT_LEADER: int = kafka_errors.NotLeaderForPartitionError.errno
OUT_OF_RANGE: int = kafka_errors.OffsetOutOfRangeError.errno
UNKNOWN_TOPIC_ID: int = kafka_errors.UnknownTopicIdError.errno


class ScriptedCluster(Cluster):
    """`answers` to the requests, in their order; an error among them is raised. `asked` are the requests, and of whom.

    The first connection and each later one give the same cluster: `connections` counts them. What was asked of it is
    answered when somebody waits for it.
    """

    def __init__(self, *answers: Any) -> None:
        self.cluster_id = "scripted"
        self._answers = list(answers)
        self.asked: list[tuple[Any, int | None]] = []
        self.connections = 0
        self.topics = {}

    def send(self, request: Any, node_id: int | None = None) -> Callable[[], Any]:
        self.asked.append((request, node_id))
        return self._answer

    def _answer(self) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, LogtwinError):
            raise answer
        return answer

    @property
    def is_done(self) -> bool:
        return not self._answers

    @contextmanager
    def connected(self, _settings: object) -> Iterator[Cluster]:
        self.connections += 1
        self.topics = {}
        yield self


Play = Callable[..., ScriptedCluster]
"""A script: the answers from now on."""


def metadata(*topics: Any) -> Any:
    return MetadataResponse(topics=list(topics), version=12)


def topic(
    name: str = "t",
    leaders: Sequence[tuple[int, int]] = ((1, 0),),
    *,
    topic_id: uuid.UUID = TOPIC_ID,
    error: int = 0,
    is_internal: bool = False,
) -> Any:
    """`leaders` are node and epoch of each partition; node -1 for one without a leader."""
    of_topic = MetadataResponse.MetadataResponseTopic
    partitions = [
        of_topic.MetadataResponsePartition(partition_index=number, leader_id=node, leader_epoch=epoch)
        for number, (node, epoch) in enumerate(leaders)
    ]
    return of_topic(name=name, topic_id=topic_id, error_code=error, is_internal=is_internal, partitions=partitions)


def offsets(*found: int, error: int = 0) -> Any:
    """The answer to a request for the offsets of the partitions 0, 1, …"""
    of_topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partitions = [
        of_topic.ListOffsetsPartitionResponse(partition_index=number, offset=offset, error_code=error)
        for number, offset in enumerate(found)
    ]
    return ListOffsetsResponse(topics=[of_topic(name="t", partitions=partitions)], version=7)


def epoch_ends(epoch: int, end: int) -> Any:
    """Of partition 0."""
    return epoch_ends_of({0: (epoch, end)})


def epoch_ends_of(ends: Mapping[int, tuple[int, int]]) -> Any:
    """Partition -> an epoch and its end."""
    of_topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    found = [of_topic.EpochEndOffset(partition=at, leader_epoch=one[0], end_offset=one[1]) for at, one in ends.items()]
    return OffsetForLeaderEpochResponse(topics=[of_topic(topic="t", partitions=found)], version=4)


def fetched(records: bytes = b"", **said: Any) -> Any:
    """The answer to a fetch from partition 0: what `fetched_part` says of it."""
    return fetched_of({0: fetched_part(records, **said)})


def fetched_part(
    records: bytes = b"",
    *,
    error: int = 0,
    log_start: int = 0,
    end: int = 100,
    diverging: tuple[int, int] | None = None,
) -> Any:
    """What an answer to a fetch says of one partition. `diverging` is an epoch and its end."""
    of_partition = FetchResponse.FetchableTopicResponse.PartitionData
    branched = diverging and of_partition.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return of_partition(
        error_code=error, records=records, log_start_offset=log_start, high_watermark=end,
        last_stable_offset=end, diverging_epoch=branched,
    )  # fmt: skip


def fetched_of(parts: Mapping[int, Any], topic_id: uuid.UUID = TOPIC_ID) -> Any:
    for number, part in parts.items():
        part.partition_index = number
    of_topic = FetchResponse.FetchableTopicResponse
    return FetchResponse(responses=[of_topic(topic_id=topic_id, partitions=list(parts.values()))], version=13)


def throttled() -> Any:
    return FetchResponse(throttle_time_ms=1000, version=13)


def batch(first: int, count: int, epoch: int = 0) -> bytes:
    """The records `first`, … as one batch, each with its offset as value."""
    return bytes(written(first, *(b"%d" % (first + number) for number in range(count)), epoch=epoch))
