"""Looks after the tables of a job, beside its batches: the work of ``logtwin maintain``, in small pieces.

One thread does a piece at a time: a merged file, some rows of the ledger, a folder that is cleaned up. Before the next
it rests for as long as the last one took, a minute at most, so the job's processors are for its batches half of the
time; and a piece is one Spark task, in a pool of its own, so a batch finds the other cores free. Nothing of it is
between a batch and its acknowledgement: only a commit on a local disk, which takes as long as any other, may be waited
for.

When it is due, the file of the last upkeep says, whoever did that (`pipeline/monitoring/upkeep.py`): of several shards
one does it for all. The first comes a while after the start, because the logs come first. A step that fails is told,
and keeps no other from being done; after a failure the next upkeep comes sooner.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.config.found import found_now
from pipeline.monitoring.upkeep import Telling, Upkeep, UpkeepFile
from pipeline.operate.maintain import Maintenance, MaintenanceStep, check_horizon, told
from sources.errors import LogtwinError, of_log

log = logging.getLogger(__name__)

_JOIN_S: Final = 10.0
_LONGEST_REST_S: Final = 60.0
_OTHERS_S: Final = 60.0
"""How long somebody else's upkeep is waited for, before the next look."""


class _Stopped(Exception):
    """The job ends. What is left, the next upkeep does."""


class TableUpkeep:
    """The upkeep of a job's tables, in a thread of its own during the `with` block. Driver only.

    With ``every_s = 0``, and with ``single_writer`` in ``[storage]``, it does nothing. The constructor raises
    ConfigurationError.
    """

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._every_s = config.maintain.every_s
        if self._every_s and config.storage.single_writer:
            # two threads that commit to one table are two writers
            log.warning("single_writer: the job looks after no table; stop it now and then, and run logtwin maintain")
            self._every_s = 0.0
        if self._every_s:
            check_horizon(config.maintain, no_job_runs=False)
        self._config = config.in_shard(None)
        self._file = UpkeepFile(config)
        self._now = Upkeep(watched_since=datetime.now(UTC).isoformat(timespec="seconds"))
        self._worked_since_s = 0.0
        self._said: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._every_s:
            self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.request_stop()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def request_stop(self) -> None:
        """Ask the upkeep to end after the piece that is under way; from any thread or a signal handler."""
        self._stop.set()

    def progress(self) -> Upkeep | None:
        """The newest upkeep that is known; None if the job does none."""
        return self._now if self._every_s else None

    def _run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "upkeep")  # of this thread
        wait_s = self._every_s / 12
        while not self._stop.wait(wait_s + random.uniform(0, self._every_s / 60)):  # noqa: S311 - jobs part
            wait_s = self._look()

    def _look(self) -> float:
        """Do what is due. Returns the seconds until the next look."""
        try:
            now = datetime.now(UTC)
            before = self._file.read(now)
            if before is not None:
                self._told(before)
                if before.running:
                    return min(_OTHERS_S, self._every_s)
                ago_s = (now - datetime.fromisoformat(str(before.began_at))).total_seconds()
                left_s = self._due_s(before) - ago_s
                if 0 < left_s <= self._every_s:
                    return left_s
            self._do()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the logs go on
            if not self._stop.is_set():  # else it was stopped, or the session is gone
                self._say(of_log(failure, "upkeep"))
            return self._every_s / 6
        return self._due_s(self._now)

    def _due_s(self, last: Upkeep) -> float:
        """How long after the beginning of the last upkeep the next is due."""
        if last.ended_at is None:
            return 0.0  # it was killed
        return self._every_s if last.error is None else self._every_s / 6

    def _do(self) -> None:
        telling = Telling(self._file, self._told)
        failed: list[LogtwinError] = []

        def note(error: LogtwinError) -> None:
            telling.failed(error)
            failed.append(error)

        self._worked_since_s = time.monotonic()
        for one in told(self._steps(note, partial(self._rest, telling)), telling):
            log.debug("upkeep: %s of %s %s in %.1f s", one.step, one.table, one.log or "", one.seconds)
        self._say(failed[0] if failed else None)

    def _steps(self, note: Callable[[LogtwinError], None], rest: Callable[[], None]) -> Iterator[MaintenanceStep]:
        """Do the steps. The logs are looked up in here, so that `told` reports a failure of that, too."""
        yield from Maintenance(self._spark, found_now(self._config), dry_run=False, pace=rest).run(note)

    def _rest(self, telling: Telling) -> None:
        """Wait, so that batches go first. Raises _Stopped."""
        telling.goes_on()
        worked_s = time.monotonic() - self._worked_since_s
        if self._stop.wait(min(worked_s, _LONGEST_REST_S)):
            raise _Stopped("the job was stopped; the next upkeep goes on")
        self._worked_since_s = time.monotonic()

    def _told(self, one: Upkeep) -> None:
        self._now = replace(one, watched_since=self._now.watched_since)

    def _say(self, error: LogtwinError | None) -> None:
        """Log once what fails, and once that it does no longer."""
        before, self._said = self._said, None if error is None else str(error)
        if error is not None and self._said != before:
            log.error("%s; the logs go on, and the upkeep of the tables is tried again", error)
        elif error is None and before is not None:
            log.warning("the upkeep of the tables works again")
