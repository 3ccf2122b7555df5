"""A streaming query on the data source ``logtwin`` that passes its batches to one function, one after the other.

A batch's plan is read from Spark's own offset log, in the query's checkpoint. Spark writes a batch's offset there
before it runs the batch: ``offsets/<batch id>`` is a write-ahead log. Its file:

====  ================================================================
line  content
====  ================================================================
1     the version of the format, ``v1``
2     the query's metadata as JSON: watermark, time, some configuration
3     the offset of the first source, as it gave it; others follow
====  ================================================================

Source: `OffsetSeqLog` of Spark 4.2 and before. Collecting a batch's rows with a Spark job would take 40 ms instead.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sinks.delta.spark_jobs import lost_worker
from sinks.storage.errors import failed_by, passes, reason
from sources.errors import LogtwinError, StorageUnreachable, find_error
from sources.extras import missing_package
from sources.group.offsets import GroupOffset

VERSION = "v1"
"""The version of the offset log."""

CHECK_OWNERSHIP_EVERY_S = 5.0
"""How often a job checks that it still owns its logs, in case no batch tells it."""


class Stream:
    """A streaming query that can be started again after it has ended. Driver only.

    `name` appears in errors and in Spark. `apply` writes a batch to the tables; `in_batch` is held meanwhile, and other
    users of the tables may hold it, too.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        options: Mapping[str, str],
        apply: Callable[[GroupOffset], None],
    ) -> None:
        self._spark = spark
        self._name = name
        self._options = options
        self._apply = apply
        self._loading: Future[DataFrame] | None = None
        self._query: StreamingQuery | None = None
        self._checkpoint = Path()
        self._stopping = False
        self.in_batch = threading.Lock()

    def load(self) -> Future[DataFrame]:
        """Begin to load the data source in a thread: Spark starts processes for it, which takes seconds."""
        loading: Future[DataFrame] = Future()
        self._loading = loading

        def run() -> None:
            try:
                loading.set_result(self._spark.readStream.format("logtwin").options(**self._options).load())
            except BaseException as error:  # noqa: BLE001 - `start` raises it
                loading.set_exception(error)

        # a daemon, so that the process can exit without waiting for it
        threading.Thread(target=run, name=f"loads {self._name}", daemon=True).start()
        return loading

    def start(self, checkpoint: Path, trigger: Mapping[str, object]) -> None:
        """Start the query; `checkpoint` is a folder of its own.

        Raises LogtwinError if the data source cannot be loaded or the checkpoint not be created.
        """
        self._checkpoint = checkpoint
        self._stopping = False
        # A name must be unique in a session, even while an older query of the same log is still ending.
        name = f"{self._name} {uuid.uuid4().hex[:8]}"
        loading = self._loading or self.load()
        self._loading = None  # the next query loads again: this load may have failed
        try:
            writer = loading.result().writeStream.foreachBatch(self._process).queryName(name)
            self._query = (
                writer.option("checkpointLocation", checkpoint.as_uri()).trigger(**trigger).start()  # type: ignore[call-overload]
            )
        except (PySparkException, Py4JError) as error:
            raise error_of(error, self._name) from error

    @property
    def is_started(self) -> bool:
        """Whether there is a query: one that runs, or one that has ended and was not passed to `end` yet."""
        return self._query is not None

    @property
    def has_ended(self) -> bool:
        return self._query is not None and not self._query.isActive

    def end(self) -> LogtwinError | None:
        """Forget a query that has ended. Returns its error; None if it was stopped or read everything."""
        query, self._query = self._query, None
        failure = None if query is None else query.exception()
        return None if failure is None else error_of(failure, self._name)

    def stop(self) -> None:
        """End the query between two batches. Idempotent."""
        self._stopping = True
        with self.in_batch:
            pass  # lets the current batch finish; the next one sees that a stop was requested
        if self._query is not None:
            self._query.stop()

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        """Apply one batch. Raises LogtwinError with its token as a note: only the traceback's text passes py4j."""
        with self.in_batch:
            try:
                if self._stopping:
                    # Returning would tell Spark that the batch is done.
                    raise LogtwinError("a stop was asked for", log=self._name)
                self._apply(GroupOffset.from_json(offset_in(self._checkpoint, batch_id)))
            except LogtwinError as error:
                error.add_note(error.token())
                raise


def error_of(failure: Exception, name: str) -> LogtwinError:
    """The error that ended a query, as it was raised in whichever process; `name` is that of the log or topic."""
    text = str(failure)
    found = find_error(text) or lost_worker(text, log=name) or missing_package(text)
    if found is None and passes(failure):
        found = StorageUnreachable(
            "the storage of the tables or checkpoints refuses Spark",
            log=name,
            found=reason(failure),
            hint="A running job tries again. Nothing is lost: what was not committed is read from the master again.",
        )
    said = text.partition("=== Streaming Query ===")[0].strip()  # the plan and the offsets follow
    return found or LogtwinError(
        "the streaming query failed", log=name, found=said[-2000:], hint="This is a defect: please report it."
    )


def offset_in(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """Return the offset of the only source of the query with `checkpoint`, a folder, in the batch `batch_id`.

    Raises LogtwinError if it is not there as Spark writes it, and what `failed_by` says if it cannot be read.
    """
    path = checkpoint / "offsets" / str(batch_id)
    try:
        version, _, offset = path.read_text(encoding="utf-8").split("\n")
        if version != VERSION:
            raise ValueError(f"version {version}")
        found: dict[str, Any] = json.loads(offset)
    except (OSError, ValueError) as error:
        kind = failed_by(error) if isinstance(error, OSError) else LogtwinError
        raise kind(
            "the query's offset log does not say what a batch reads",
            expected=f"{VERSION}, metadata and one offset in {path}",
            found=error,
            hint="Is spark.sql.streaming.offsetLog.formatVersion another than 1? Otherwise please report it.",
        ) from error
    return found
