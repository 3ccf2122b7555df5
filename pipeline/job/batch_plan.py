"""What the planner of a stream has put into a batch: read from the batch's own plan, where Spark has it.

A Spark job that brings the same rows takes 40 ms and a Python worker, a third of what a small batch may take in all.
"""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame

from sources.group.stream import GroupPartition
from sources.master import Planned


def planned_in(batch: DataFrame) -> list[Planned]:
    """In order; `batch` is one that `foreachBatch` was given, of the data source ``logtwin``."""
    return [one for partition in _partitions(batch) for one in partition.planned]


def _partitions(batch: DataFrame) -> list[GroupPartition]:
    rdd: Any = batch._jdf.queryExecution().toRdd()
    while rdd.dependencies().nonEmpty():
        rdd = rdd.dependencies().head().rdd()
    pickled = (partition.inputPartition().get().pickedPartition() for partition in rdd.partitions())
    serializer: Any = CloudPickleSerializer()
    return [serializer.loads(bytes(one)) for one in pickled]
