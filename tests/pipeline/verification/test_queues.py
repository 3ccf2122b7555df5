"""Which jumps of queue offsets are found, and what they are taken for: rules of the format's section 5."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.verify.queues import Jump, Why, jumps
from sinks.state.holes import Holes
from sinks.tables import LOG
from sinks.warehouse import spark_schema
from sources.offsets import LogId, Offset, OffsetRange

pytestmark = pytest.mark.spark

LOG_ID = LogId("rocketmq", "broker-a")
PREPARED, COMMIT, ROLLBACK, INNER_BATCH = 0x4, 0x8, 0xC, 0x80


def message(offset: int, topic: str, queue_offset: int, **values: Any) -> dict[str, Any]:
    return {
        "log_id": str(LOG_ID), "offset": offset, "kind": "message", "topic": topic, "queue_id": 0,
        "queue_offset": queue_offset, "sys_flag": 0, "properties": {}, **values,
    }  # fmt: skip


ROWS = [
    # runs from where the replica begins; what has no queue offset of its own does not count
    message(0, "sound", 7),
    message(10, "sound", 0, sys_flag=PREPARED),
    message(20, "sound", 8, sys_flag=COMMIT),
    message(30, "sound", 0, sys_flag=ROLLBACK),
    message(40, "sound", 3, queue_id=1),
    message(50, "sound", 9),
    message(55, "sound", 1, log_id="rocketmq/broker-b"),
    {**message(57, "sound", 1), "kind": "blank", "topic": None, "sys_flag": None},
    # single messages and inner batches of a topic are counted apart
    message(60, "batches", 0, sys_flag=INNER_BATCH, properties={"INNER_NUM": "5"}),
    message(70, "batches", 0),
    message(80, "batches", 5, sys_flag=INNER_BATCH, properties={"INNER_NUM": "2"}),
    message(90, "batches", 1),
    message(100, "batches", 8, sys_flag=INNER_BATCH, properties={"INNER_NUM": "2"}),
    # one record is missing, one repeated
    message(110, "lossy", 0),
    message(120, "lossy", 2),
    message(130, "lossy", 2),
    message(140, "lossy", 3),
    message(145, "doubled", 0),
    message(145, "doubled", 0),
    # over a hole of the replica, and made anew
    message(150, "holed", 0),
    message(200, "holed", 9),
    message(210, "anew", 4),
    message(220, "anew", 0),
    # not below the position
    message(900, "sound", 99),
]


def jump(topic: str, after: int, at: int, expected: int, found: int, why: Why) -> Jump:
    return Jump(topic=topic, queue_id=0, after=Offset(after), at=Offset(at), expected=expected, found=found, why=why)


def test_jumps(spark: SparkSession, tmp_path: Path) -> None:
    rows = [tuple(row.get(field.name) for field in spark_schema(LOG.schema)) for row in ROWS]
    spark.createDataFrame(rows, spark_schema(LOG.schema)).write.format("delta").save(str(tmp_path / "log"))
    holes = Holes(ranges=(OffsetRange(Offset(160), Offset(190)),))
    assert jumps(spark, str(tmp_path / "log"), 0, LOG_ID, Offset(900), holes) == (
        jump("batches", 80, 100, 7, 8, Why.MISSING),
        jump("lossy", 110, 120, 1, 2, Why.MISSING),
        jump("lossy", 120, 130, 3, 2, Why.REPEATED),
        jump("doubled", 145, 145, 1, 0, Why.REPEATED),
        jump("anew", 210, 220, 5, 0, Why.RECREATED),
        jump("holed", 150, 200, 1, 9, Why.HOLE),
    )
    assert [why for why in Why if why.is_fault] == [Why.MISSING, Why.REPEATED]
