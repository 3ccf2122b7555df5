"""The questions about single records, in Spark's SQL; which of them are worth a session; what is read without one.

Columns have the names of the fields in `pipeline.report.facts`. Names in braces are filled in: ``{most}`` bounds the
rows, ``{width_us}`` is the length of a span in microseconds, where a time belongs to the span that starts at the
greatest multiple of it at or below; others stand for the answer of another question. They are no parameter markers:
Delta's parser does not know these.

A session takes most of the time of a small report, and each question some seconds of that. Statistics in the Delta log
say which topics a file may have; where they leave it open, a read of one column decides, as long as the files are few.
Whatever is not ruled out here is asked. The views alone say what the answer is. Small tables are read by pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.data_file import bounds, may_hold
from sinks.delta.delta_log import LoggedVersion, StoredFile, newest
from sinks.delta.files import dataset_of
from sinks.storage.errors import failed_by
from sinks.tables import IS_CURRENT, LOG, TableSpec, metadata_table
from sources.metadata import CONSUMER_OFFSETS, KAFKA_PARTITIONS, MetadataKind
from sources.readable import instant

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
"""A bit of sys_flag."""
_MASTERS: Final = "rocketmq/"
_MOST_FILES: Final = 500
"""More are not looked into: that would take as long as a question."""

# one row a topic: the driver puts them into their order
TOPICS: Final = """
SELECT topic, count(*) AS messages, coalesce(sum(octet_length(body)), 0) AS bytes
FROM messages
GROUP BY topic
UNION ALL
SELECT regexp_replace(log_id, '/[0-9]+$', ''), count(*), coalesce(sum(octet_length(value)), 0)
FROM kafka_log
GROUP BY 1
"""

GROUPS: Final = """
WITH of_topics AS (
  SELECT
    log_id,
    consumer_group,
    topic,
    count(*) AS queues,
    coalesce(sum(messages_behind), 0) AS messages_behind,
    CAST(max(seconds_behind) AS DOUBLE) AS seconds_behind
  FROM consumer_lag
  GROUP BY log_id, consumer_group, topic
  UNION ALL
  SELECT
    regexp_replace(log_id, '/[0-9]+$', ''),
    consumer_group,
    topic,
    count(*),
    if(count(group_offsets_behind) = count(*), sum(group_offsets_behind), NULL),
    NULL
  FROM kafka_lag
  WHERE consumer_group IS NOT NULL
  GROUP BY 1, consumer_group, topic
)
SELECT *, count(*) OVER () AS groups, count_if(messages_behind > 0) OVER () AS groups_behind
FROM of_topics
ORDER BY messages_behind DESC NULLS LAST, seconds_behind DESC NULLS LAST, log_id, consumer_group, topic
LIMIT {most}
"""

TRANSACTIONS: Final = """
SELECT
  state,
  log_id,
  coalesce(producer_group, '') AS source,
  topic,
  -- null where a year has not four digits: no axis has it
  IF(unix_micros(prepared_timestamp) BETWEEN 0 AND 253402300799999999, prepared_timestamp, NULL) AS at,
  false AS is_late
FROM transactions
"""

DELAYS: Final = """
WITH newest AS (
  SELECT log_id, max(last_store_timestamp) AS stored
  FROM ledger
  GROUP BY log_id
)
SELECT
  state,
  log_id,
  if(kind = 'level', concat('level ', level), kind) AS source,
  topic,
  due_timestamp AS at,
  coalesce(due_timestamp <= stored, false) AS is_late
FROM delayed_messages
LEFT JOIN newest USING (log_id)
"""

# one pass over what may be dear: a row for each state, and one for each place where something is pending
WAITING: Final = """
WITH counted AS (
  SELECT
    state, log_id, source, topic, grouping(topic) = 1 AS is_total,
    count(*) AS count, min(at) AS first, max(at) AS last
  FROM {waiting}
  GROUP BY GROUPING SETS ((state), (state, log_id, source, topic))
)
SELECT *, count_if(NOT is_total) OVER () AS places
FROM counted
WHERE is_total OR state = 'pending'
ORDER BY is_total DESC, first NULLS LAST, log_id, source, topic
LIMIT {most}
"""

SLICES: Final = """
SELECT timestamp_micros(unix_micros(at) - pmod(unix_micros(at), {width_us})) AS at, count(*) AS count, is_late
FROM {waiting}
WHERE state = 'pending' AND at IS NOT NULL
GROUP BY 1, 3
ORDER BY 1, 3
"""


def worth_asking(place: str, log: LoggedVersion | None, kafka_log: LoggedVersion | None) -> frozenset[str]:
    """Return those of ``topics``, ``groups``, ``transactions`` and ``delays`` whose answer may not be empty.

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


def rows_of(spec: TableSpec, place: str, *columns: str) -> pa.Table:
    """Read these columns of every row of a table that has no partitions; no rows if there is no table.

    Raises ReplicaError, StorageUnreachable.
    """
    path = spec.path(place)
    version = newest(path)
    try:
        names = [] if version is None else [one.path for one in version.files.values()]
        return dataset_of(path, names, spec.schema).to_table(columns=list(columns)).unify_dictionaries()
    except (OSError, pa.ArrowException) as error:
        raise unread(place, error) from error


def dicts_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows by the names of their columns. A time outside of the years 1 to 9999 is None."""
    columns = {name: _values(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if at_us is None else instant(at_us) for at_us in micros]


def unread(place: str, error: Exception) -> Exception:
    """Return the error for a table of the replica in `place` that cannot be read."""
    return failed_by(error)(
        f"the replica in {place} cannot be read",
        found=error,
        hint="Check that its storage can be reached; logtwin verify finds files that are damaged or gone.",
    )
