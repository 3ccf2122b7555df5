"""Typed tables without Spark: tasks run in this process, on tables that need no JVM.

What the views make of a record is left out: a message here is one record, not compressed, of no inner batch, and there
is no condition. `test_by_spark.py` has these.
"""

import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable, Overlap, Snapshot
from sinks.typed.step.log_rows import LogRows, Share, shares
from sinks.typed.step.messages import topic_names
from sinks.typed.step.parsing import MESSAGES, OfStep, Parsing
from sinks.typed.step.parsing_job import ParsingJob
from sinks.typed.step.suspects import Ranges
from sources.offsets import OffsetRange
from tests.pipeline.group_in_process import use_plain
from tests.pipeline.typed.world import InFiles
from tests.sinks.plain_session import copied


class WorkerDies(BaseException):
    """What a task raises where a worker would be killed."""


class PlainJob(ParsingJob):
    """Runs its tasks here."""

    def __init__(self, _spark: object, log: KernelTable, parsing: Parsing) -> None:
        self._wanted = wanted = parsing.wanted
        assert wanted.where is None
        assert not wanted.tags
        self._log = log
        self._parsing = parsing
        self._reading = LogRows(wanted.source, log.path, topic_names(wanted))

    def prepare(self) -> None:
        """There is nothing to plan."""

    def _rows(self, on: Snapshot, ranges: Ranges, of_step: OfStep) -> list[dict[str, Any]]:
        """In two tasks. Raises PySparkException as Spark does, with the text of what ended one."""
        files = {
            log_id: self._log.files(
                on,
                {"log_id": str(log_id)},
                Overlap(OffsetRange(min(one.start for one in several), max(one.end for one in several)), "offset"),
            )
            for log_id, several in ranges.items()
        }
        try:
            return [row for one in shares(files, ranges, 2) for row in self._task(one, of_step)]
        except WorkerDies as error:
            raise PySparkException("Python worker exited unexpectedly (crashed)") from error
        except Exception:  # noqa: BLE001
            raise PySparkException(traceback.format_exc()) from None

    def _task(self, share: Share, of_step: OfStep) -> Iterator[dict[str, Any]]:
        for batch in copied(self._parsing)(self._messages(share), of_step):
            yield from batch.to_pylist()

    def _messages(self, share: Share) -> Iterator[pa.RecordBatch]:
        for batch in self._reading(share, self._reading.spec.schema.names):
            rows = batch.filter(pc.equal(batch["kind"], "message"))
            found = {name: rows[name] for name in ("log_id", "offset", "body", "sys_flag")}
            found |= {"stored_at": rows["store_timestamp"], "source": rows["topic"]}
            columns = [found.get(one.name, pa.nulls(rows.num_rows, one.type)).cast(one.type) for one in MESSAGES]
            yield pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


@contextmanager
def in_process() -> Iterator[SparkSession]:
    """What stands for a session, also in jobs and verbs, as long as the `with` lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sinks.typed.step.follower.ParsingJob", PlainJob)
        yield use_plain(patch)


@contextmanager
def world_in_process(folder: Path) -> Iterator[InFiles]:
    with in_process() as session, closing(InFiles(session, folder)) as world:
        yield world
