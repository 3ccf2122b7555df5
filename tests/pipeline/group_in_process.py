"""A job's group of logs without Spark's streaming and without its tasks: planned, read and committed in this process.

Everything is the job's own but the two hops between processes. So a job of a few small logs takes a second instead of
several, and hundreds of histories can be tried.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sinks.delta.spark_jobs import run_shares
from sources.errors import LogtwinError
from sources.group.offsets import GroupOffset
from sources.group.stream import group_source
from tests.sinks.plain_session import PlainSession, make_plain


class InProcess:
    """`pipeline.job.stream.Stream`, in a thread of this process."""

    def __init__(
        self, spark: SparkSession, name: str, options: Mapping[str, str], apply: Callable[[GroupOffset], None]
    ) -> None:
        self._options = options
        self._apply = apply
        self._thread: threading.Thread | None = None
        self._failure: LogtwinError | None = None
        self._stopping = threading.Event()
        self.in_batch = threading.Lock()

    def load(self) -> None:
        """There is nothing to load."""

    def start(self, checkpoint: Path, trigger: Mapping[str, object]) -> None:
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=("availableNow" in trigger,), daemon=True)
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    @property
    def has_ended(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def end(self) -> LogtwinError | None:
        self._thread = None
        return self._failure

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, ends: bool) -> None:
        reader: Any = group_source(self._options).stream_reader()
        if ends:
            reader.prepareForTriggerAvailableNow()
        at = reader.initialOffset()
        try:
            while not self._stopping.is_set():
                then = reader.latestOffset(at, ReadAllAvailable())
                if then != at:
                    with self.in_batch:
                        self._apply(GroupOffset.from_json(then))
                elif ends:
                    return
                at = then
        except LogtwinError as error:
            self._failure = error
        finally:
            reader.stop()


also_with_spark = pytest.mark.parametrize(
    "session", ["plain", pytest.param("spark", marks=pytest.mark.spark)], indirect=True
)
"""Those of `session` that show each time, and not only at night, that Kernel does what its stand-in does."""


# Who takes `session_for` by name. Its own module comes last: a module that is imported while it is exchanged would keep
# for good what stands in its place.
_TAKERS = (
    "pipeline.operate.repair",
    "pipeline.verify.run",
    "pipeline.sql.reader",
    "pipeline.inspect.tables",
    "pipeline.demo.live",
    "pipeline.spark.session",
)


def give_to_verbs(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs that would start a session take this one."""
    for module in _TAKERS:
        monkeypatch.setattr(f"{module}.session_for", lambda *_, **__: session)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on jobs run like this."""
    plain = cast(SparkSession, PlainSession())
    monkeypatch.setattr("pipeline.job.log_group.Stream", InProcess)
    monkeypatch.setattr("sinks.batch.tasks.run_shares", lambda _, *given: run_shares(plain, *given))


def use_plain(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """From here on jobs and verbs run like this, and without Spark altogether: in the session that this returns.

    What only queries of Spark's tell is not asked: a verification does not look at the queues.
    """
    use(monkeypatch)
    session = make_plain(monkeypatch)
    monkeypatch.setattr("pipeline.job.replicate.prepare_for_many_files", lambda _: None)
    monkeypatch.setattr("pipeline.verify.run.jumps", lambda *_: ())
    monkeypatch.setattr("tests.pipeline.running.register", lambda _: None)
    give_to_verbs(session, monkeypatch)
    return session
