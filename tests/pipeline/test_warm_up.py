"""Workers are there before the first batch; and what goes wrong then is not said before the job meets it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipeline.spark.warm_up import warm_up
from tests.patience import wait_until

WAIT_S = 60.0


@pytest.mark.spark
def test_each_core_gets_a_task_of_python(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    thread = warm_up(spark)
    thread.join(WAIT_S)
    assert not thread.is_alive()
    [job] = set(tracker.getJobIdsForGroup(None)) - before
    found = tracker.getJobInfo(job)
    assert found is not None
    [stage] = found.stageIds

    def completed() -> int:  # Spark counts a little later
        info = tracker.getStageInfo(stage)
        return 0 if info is None else info.numCompletedTasks

    wait_until(lambda: completed() == spark.sparkContext.defaultParallelism, "a task for each core")


def test_warming_up_never_fails() -> None:
    class Stopped:
        class sparkContext:
            defaultParallelism = 2

            @staticmethod
            def parallelize(*given: Any) -> Any:
                raise PySparkRuntimeError("there is no session any more")

    thread = warm_up(cast("SparkSession", Stopped()))
    thread.join(WAIT_S)
    assert not thread.is_alive()
