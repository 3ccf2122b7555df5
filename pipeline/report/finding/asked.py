"""Which questions about single records are worth a Spark session: those that may have an answer with something in it.

A session takes most of the time of a small report, and each question some seconds of that. Statistics in the Delta log
say which topics a file may have; where they leave it open a look into one column does, as long as the files are few.
Whatever is not ruled out here is asked. The views alone say what the answer is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.finding.rows import unread
from sinks.delta.delta_log import LoggedVersion, StoredFile, newest
from sinks.delta.file_statistics import bounds, may_hold
from sinks.delta.files import dataset_of
from sinks.tables import IS_CURRENT, LOG, metadata_table
from sources.metadata import CONSUMER_OFFSETS, KAFKA_PARTITIONS, MetadataKind

TRANSACTION_TOPICS: Final = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
"""Without a record in one of these, and without one that is marked as prepared, `transactions` has no row."""
DELAY_TOPICS: Final = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
"""Without a record in one of these `delayed_messages` has no row."""
_TYPE_BITS: Final = 12
_PREPARED: Final = 4
"""Of sys_flag."""
_MASTERS: Final = "rocketmq/"
_MOST_FILES: Final = 500
"""More are not looked into: that would take as long as a question."""


def worth_asking(place: str, log: LoggedVersion | None, kafka_log: LoggedVersion | None) -> frozenset[str]:
    """Of ``topics``, ``groups``, ``transactions`` and ``delays`` those that may have an answer with something in it.

    The tables `log` and `kafka_log` are those of the replica in `place`. Raises ReplicaError, StorageUnreachable.
    """
    files = [] if log is None else [one for one in log.files.values() if _may_be_of_masters(one)]
    has_records = kafka_log is not None and any(
        file.statistics().get("numRecords") != 0 for file in kafka_log.files.values()
    )
    worth = {
        "topics": bool(files) or has_records,
        "groups": (bool(files) and _is_known(place, CONSUMER_OFFSETS))
        or (has_records and _is_known(place, KAFKA_PARTITIONS)),
        "transactions": _has(place, files, TRANSACTION_TOPICS, _PREPARED),
        "delays": _has(place, files, DELAY_TOPICS, None),
    }
    return frozenset(name for name, is_worth in worth.items() if is_worth)


def _may_be_of_masters(file: StoredFile) -> bool:
    least, greatest = bounds(file.statistics(), "log_id")
    return (least is None or least[: len(_MASTERS)] <= _MASTERS) and (greatest is None or greatest >= _MASTERS)


def _is_known(place: str, kind: MetadataKind) -> bool:
    """Whether there is metadata of this kind now: what is current has files of its own."""
    found = newest(metadata_table(kind).path(place))
    return found is not None and any(one.partition()[IS_CURRENT.name] == "true" for one in found.files.values())


def _has(place: str, files: Sequence[StoredFile], topics: Sequence[str], kind: int | None) -> bool:
    """Whether there may be a record in one of these topics, or one of that type of transaction."""
    possible = [one.path for one in files if _may_have(one, topics, kind)]
    if not possible or len(possible) > _MOST_FILES:
        return bool(possible)
    try:
        return _look(place, possible, topics, kind)
    except (OSError, pa.ArrowException) as error:
        raise unread(place, error) from error


def _may_have(file: StoredFile, topics: Sequence[str], kind: int | None) -> bool:
    statistics = file.statistics()
    if any(may_hold(statistics, "topic", one) for one in topics):
        return True
    least, greatest = bounds(statistics, "sys_flag")
    if kind is None:
        return False
    return least is None or greatest is None or least < 0 or greatest >= kind


def _look(place: str, names: Sequence[str], topics: Sequence[str], kind: int | None) -> bool:
    schema = pa.schema([LOG.schema.field(name) for name in ("topic", "sys_flag")])
    wanted = pc.field("topic").isin(list(topics))
    if kind is not None:
        wanted |= pc.bit_wise_and(pc.field("sys_flag"), pa.scalar(_TYPE_BITS, schema.field("sys_flag").type)) == kind
    batches: Iterator[pa.RecordBatch] = dataset_of(LOG.path(place), names, schema).to_batches(filter=wanted)
    return any(batch.num_rows for batch in batches)
