"""The streaming query of a session without Spark: it asks the reader of the data source, here, as Spark's planner does.

Offsets go through JSON, partitions are pickled, and an error is text: what passes between Spark's processes.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Self

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable


class PlainStream:
    """`spark.readStream`, the DataFrame that it loads, its `writeStream`, and the query that this starts."""

    def __init__(self, sources: Mapping[str, type[DataSource]]) -> None:
        self._sources = sources
        self._options: dict[str, str] = {}
        self._is_over = threading.Event()
        self._failure: PySparkException | None = None
        self._thread = threading.Thread(target=self._run, name="a stream without Spark", daemon=True)

    def format(self, name: str) -> Self:
        self._source = self._sources[name]
        return self

    def options(self, **options: str) -> Self:
        self._options |= options
        return self

    def load(self) -> Self:
        try:
            made: Any = self._source(CaseInsensitiveDict(self._options))
            self._reader: Any = made.streamReader(made.schema())
        except Exception:  # noqa: BLE001 - as Spark does
            raise PySparkException(traceback.format_exc()) from None
        return self

    @property
    def writeStream(self) -> Self:
        return self

    def foreachBatch(self, apply: Callable[[Any, int], None]) -> Self:
        self._apply = apply
        return self

    def queryName(self, name: str) -> Self:
        return self

    def option(self, name: str, value: str) -> Self:
        return self

    def trigger(self, *, availableNow: bool = False, processingTime: str = "") -> Self:
        self._ends = availableNow
        return self

    def start(self) -> Self:
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> PySparkException | None:
        return self._failure

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._take_batches()
        except BaseException:  # noqa: BLE001 - as Spark does
            self._failure = PySparkException(traceback.format_exc())

    def _take_batches(self) -> None:
        if self._ends:
            self._reader.prepareForTriggerAvailableNow()
        at, number = self._reader.initialOffset(), 0
        while not self._is_over.is_set():
            end = json.loads(json.dumps(self._reader.latestOffset(at, ReadAllAvailable())))
            if end == at and self._ends:
                return
            if end != at and not self._is_over.is_set():
                self._apply(PlainBatch(self._reader.partitions(at, end)), number)
                self._reader.commit(end)
                at, number = end, number + 1


class PlainBatch:
    """A DataFrame of `partitions`, as far as `pipeline.job.batch_plan` looks into it."""

    def __init__(self, partitions: Any) -> None:
        dumps: Any = cloudpickle.dumps
        self._jdf = _Java([dumps(one) for one in partitions])


class _Java:
    """The query of a batch, its RDD, which depends on none, and the partitions of that."""

    def __init__(self, pickled: Any) -> None:
        self._pickled = pickled

    def partitions(self) -> list[_Java]:
        return [_Java(one) for one in self._pickled]

    def nonEmpty(self) -> bool:
        return False

    def pickedPartition(self) -> Any:
        return self._pickled

    def _same(self) -> _Java:
        return self

    queryExecution = toRdd = dependencies = inputPartition = get = _same
