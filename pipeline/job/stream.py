"""A streaming query of the data source ``logtwin`` that gives its batches to one function, one after the other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.job.batch_plan import planned_in
from sinks.delta.spark_jobs import lost_worker
from sinks.storage.errors import passes, reason
from sources.errors import LogtwinError, StorageUnreachable, find_error
from sources.extras import missing_package
from sources.master import Planned

CHECK_OWNERSHIP_EVERY_S = 5.0
"""How often a job looks whether what it reads is still its own, where no batch tells it."""


class Stream:
    """Driver only. Started again after it has ended, it is another query. `name` is for errors and Spark's own words.

    `apply` brings what is planned of a batch into the tables; `in_batch` is held meanwhile, and may be by whoever else
    uses them.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        options: Mapping[str, str],
        apply: Callable[[Sequence[Planned]], None],
    ) -> None:
        """Reads by `options` of the data source."""
        self._spark = spark
        self._name = name
        self._options = options
        self._apply = apply
        self._loading: Future[DataFrame] | None = None
        self._query: StreamingQuery | None = None
        self._stopping = False
        self.in_batch = threading.Lock()

    def load(self) -> Future[DataFrame]:
        """Begin to load the data source, beside whoever calls: Spark starts processes for it, which takes seconds."""
        loading: Future[DataFrame] = Future()
        self._loading = loading

        def run() -> None:
            try:
                loading.set_result(self._spark.readStream.format("logtwin").options(**self._options).load())
            except BaseException as error:  # noqa: BLE001 - whoever starts the query is told
                loading.set_exception(error)

        # a daemon: a process that is to end does not wait for it
        threading.Thread(target=run, name=f"loads {self._name}", daemon=True).start()
        return loading

    def start(self, checkpoint_uri: str, trigger: Mapping[str, object]) -> None:
        """Begin to read. Raises LogtwinError where the data source cannot be loaded, or the checkpoint not be begun."""
        self._stopping = False
        # A name must be unique in a session, also while an older query of the same log is still ending.
        name = f"{self._name} {uuid.uuid4().hex[:8]}"
        loading = self._loading or self.load()
        self._loading = None  # the next query has one of its own: this one may have failed
        try:
            writer = loading.result().writeStream.foreachBatch(self._process).queryName(name)
            self._query = (
                writer.option("checkpointLocation", checkpoint_uri).trigger(**trigger).start()  # type: ignore[call-overload]
            )
        except (PySparkException, Py4JError) as error:
            raise error_of(error, self._name) from error

    @property
    def is_started(self) -> bool:
        """Whether there is a query, or one that has ended and was not asked about."""
        return self._query is not None

    @property
    def has_ended(self) -> bool:
        return self._query is not None and not self._query.isActive

    def end(self) -> LogtwinError | None:
        """Of a query that has ended, what ended it; None where it was stopped, or everything was there."""
        query, self._query = self._query, None
        failure = None if query is None else query.exception()
        return None if failure is None else error_of(failure, self._name)

    def stop(self) -> None:
        """End the query between two batches. Idempotent."""
        self._stopping = True
        with self.in_batch:
            pass  # the batch under way may end; the next one finds that a stop was asked for
        if self._query is not None:
            self._query.stop()

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        """Raises LogtwinError with the token in its notes: through py4j only the text of the traceback arrives."""
        with self.in_batch:
            try:
                if self._stopping:
                    # Returning would tell Spark that the batch is done.
                    raise LogtwinError("a stop was asked for", log=self._name)
                self._apply(planned_in(batch))
            except LogtwinError as error:
                error.add_note(error.token())
                raise


def error_of(failure: Exception, name: str) -> LogtwinError:
    """What ended a query, as the error that was raised in whichever process it was; `name` is the log's or topic's."""
    text = str(failure)
    found = find_error(text) or lost_worker(text, log=name) or missing_package(text)
    if found is None and passes(failure):
        found = StorageUnreachable(
            "the storage of the tables or checkpoints refuses Spark",
            log=name,
            found=reason(failure),
            hint="A running job tries again. Nothing is lost: what was not committed is read from the master again.",
        )
    said = text.partition("=== Streaming Query ===")[0].strip()  # what comes behind it is the plan, and the offsets
    return found or LogtwinError(
        "the streaming query failed", log=name, found=said[-2000:], hint="This is a defect: please report it."
    )
