"""Workers are there before the first batch; and what goes wrong then is not said before the job meets it."""

from __future__ import annotations

from typing import Any, cast

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipeline.spark.warm_up import warm_up

WAIT_S = 60.0


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
