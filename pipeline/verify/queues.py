"""The logical proof: the consume-queue offsets of every queue run without hole or repeat, from the replica's first on.

Which records take a queue offset: messages without a transaction and committed ones; prepared and rolled back ones
take none. An inner batch (sys_flag 0x80, topics of type BatchCQ) takes as many as it holds messages, from a count of
its own. Two jumps are no fault: over a hole of the replica, and back to 0, where the topic was made anew.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sinks.state.holes import Holes
from sources.offsets import LogId, Offset

_WITH_QUEUES = "rocketmq"
JUMPS_LISTED = 100
_TAKES_ONE = "kind = 'message' AND sys_flag & 12 IN (0, 8)"
_IS_BATCH = "sys_flag & 128 <> 0"
_BATCH_SIZE = f"if({_IS_BATCH}, coalesce(try_cast(properties['INNER_NUM'] AS BIGINT), 1), 1)"
_SQL = """
WITH pairs AS (
    SELECT topic, queue_id, offset, queue_offset + taken AS expected,
           lead(queue_offset) OVER in_order AS found, lead(offset) OVER in_order AS found_at
    FROM {records}
    WINDOW in_order AS (PARTITION BY topic, queue_id, is_batch ORDER BY offset)
)
SELECT *, EXISTS (SELECT * FROM {holes} hole WHERE hole.start < found_at AND hole.end > offset) AS over_hole
FROM pairs WHERE found <> expected ORDER BY over_hole, found_at
"""
_HOLES_SCHEMA = "start BIGINT, end BIGINT"


class Why(Enum):
    """What a jump is."""

    MISSING = "missing"  # records of the queue are not there
    REPEATED = "repeated"  # queue offsets are there twice
    HOLE = "hole"  # the replica has a hole there, and says so
    RECREATED = "recreated"  # the queue began again at 0

    @property
    def is_fault(self) -> bool:
        return self in (Why.MISSING, Why.REPEATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """Behind the record at `after` its queue goes on at `at`, with the queue offset `found` instead of `expected`."""

    topic: str
    queue_id: int
    after: Offset
    at: Offset
    expected: int
    found: int
    why: Why

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "why": self.why.value}


def has_queues(log_id: LogId) -> bool:
    """Whether there is anything to prove: the entries of other kinds of logs are in no queue."""
    return log_id.kind == _WITH_QUEUES


def jumps(
    spark: SparkSession, path: str, version: int, log_id: LogId, position: Offset, holes: Holes
) -> tuple[Jump, ...]:
    """Where the queues of `log_id` do not run, in a version of the log table at `path`.

    Those over holes come last; the rest in the order of the log, and no more than JUMPS_LISTED of all.
    """
    log = spark.read.format("delta").option("versionAsOf", version).load(path)
    ours = log.where((F.col("log_id") == str(log_id)) & (F.col("offset") < position)).where(_TAKES_ONE)
    # most logs have no batch: then nobody has to read the properties
    taken = "1" if ours.where(_IS_BATCH).isEmpty() else _BATCH_SIZE
    records = ours.selectExpr(
        "topic", "queue_id", "offset", "queue_offset", f"{_IS_BATCH} AS is_batch", f"{taken} AS taken"
    )
    ranges = spark.createDataFrame([(hole.start, hole.end) for hole in holes.ranges], _HOLES_SCHEMA)
    found = spark.sql(_SQL, records=records, holes=ranges)
    return tuple(_jump(row.asDict()) for row in found.limit(JUMPS_LISTED).collect())


def _jump(row: dict[str, Any]) -> Jump:
    after, at, expected, found = (row[name] for name in ("offset", "found_at", "expected", "found"))
    return Jump(
        topic=row["topic"],
        queue_id=row["queue_id"],
        after=after,
        at=at,
        expected=expected,
        found=found,
        why=_why(expected, found, is_same=after == at, over_hole=row["over_hole"]),
    )


def _why(expected: int, found: int, *, is_same: bool, over_hole: bool) -> Why:
    """`is_same` says that it is one record, twice."""
    if over_hole:
        return Why.HOLE
    if found > expected:
        return Why.MISSING
    return Why.RECREATED if found == 0 and not is_same else Why.REPEATED
