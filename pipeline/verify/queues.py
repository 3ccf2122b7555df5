"""The logical proof: the queue offsets of every queue have no gap and no repeat, from the replica's first one on.

Messages without a transaction and committed ones take a queue offset; prepared and rolled back ones take none. An inner
batch (sys_flag 0x80, topics of type BatchCQ) takes as many as it holds messages, from a separate count. Two jumps are
no fault: one over a hole of the replica, and one back to 0 if the topic was created again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sinks.state.holes import Holes
from sources.offsets import LogId, Offset

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
    """The reason for a jump."""

    MISSING = "missing"  # records of the queue are not there
    REPEATED = "repeated"  # queue offsets are there twice
    HOLE = "hole"  # the replica has a known hole there
    RECREATED = "recreated"  # the queue began again at 0

    @property
    def is_fault(self) -> bool:
        return self in (Why.MISSING, Why.REPEATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A jump in a queue: after the record at `after` it goes on at `at`, with queue offset `found`, not `expected`.

    `incident` is the id of the incident that tells it: the bytes there were proven to be the master's.
    """

    topic: str
    queue_id: int
    after: Offset
    at: Offset
    expected: int
    found: int
    why: Why
    incident: str | None = None

    @property
    def is_masters(self) -> bool:
        """Whether it is the master's own, if every byte is equal: between two records, of which neither is missing."""
        return self.why.is_fault and self.after != self.at

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong that no incident tells."""
        return self.why.is_fault and self.incident is None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "why": self.why.value}


def jumps(
    spark: SparkSession, path: str, version: int, log_id: LogId, position: Offset, holes: Holes, known: int = 0
) -> tuple[Jump, ...]:
    """The jumps in the queues of `log_id`, in a version of the log table at `path`.

    They come in the order of the log, with those over holes last, and at most JUMPS_LISTED beside the `known` ones.
    """
    log = spark.read.format("delta").option("versionAsOf", version).load(path)
    ours = log.where((F.col("log_id") == str(log_id)) & (F.col("offset") < position)).where(_TAKES_ONE)
    # most logs have no batches: then the properties need not be read
    taken = "1" if ours.where(_IS_BATCH).isEmpty() else _BATCH_SIZE
    records = ours.selectExpr(
        "topic", "queue_id", "offset", "queue_offset", f"{_IS_BATCH} AS is_batch", f"{taken} AS taken"
    )
    ranges = spark.createDataFrame([(hole.start, hole.end) for hole in holes.ranges], _HOLES_SCHEMA)
    found = spark.sql(_SQL, records=records, holes=ranges)
    return tuple(_jump(row.asDict()) for row in found.limit(JUMPS_LISTED + known).collect())


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
    """The reason for a jump. `is_same`: the same record is there twice."""
    if over_hole:
        return Why.HOLE
    if found > expected:
        return Why.MISSING
    return Why.RECREATED if found == 0 and not is_same else Why.REPEATED
