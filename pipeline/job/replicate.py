"""Replicate every log and topic of a configuration side by side. What happens to one the others do not notice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypedDict

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.catalog import Catalogued
from pipeline.job.log_group import LogGroup
from pipeline.job.log_replication import LogReplication
from pipeline.job.replication import Replication
from pipeline.job.typed_tables import TypedTables
from pipeline.monitoring.progress import ENDED, Phase, Progress
from pipeline.system.open_file_limit import prepare_for_many_files
from sinks.batch.result import Step, no_step
from sinks.state.opening import Opening
from sinks.tables import KAFKA_LOG, LOG, TableSpec
from sources.errors import ConfigurationError, LogtwinError, NotAlone, of_log

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Logs that are looked after at the same time, at most: each may wait for its master."""

LOOK_S = 0.2
"""How long a look at all logs waits for those whose masters do not answer at once."""

LAST_FETCH_S = 5.0
"""How long an end waits for the masters' metadata, of all logs together."""

CLOSE_S = 10.0
"""How long an end waits for a log that is just being started, or asked."""

OnPoll = Callable[[list[Progress]], bool]
"""Is shown how every log stands, and says whether to go on."""


class _Ways(TypedDict):
    """How each of them is to run."""

    available_now: bool
    take_over: bool
    opening: Opening


class Job:
    """Every log and topic of a configuration, replicated side by side: those of a table are one group.

    With `take_over` also those that another job replicates just now: that one loses them.
    Raises ConfigurationError, MasterError where a pattern of topics has to be asked for.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        *,
        available_now: bool,
        take_over: bool = False,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        prepare_for_many_files(spark)
        self.available_now = available_now
        self._on_step = on_step or no_step
        ways: _Ways = {"available_now": available_now, "take_over": take_over, "opening": Opening()}
        members: dict[TableSpec, list[Replication]] = {
            LOG: [LogReplication(spark, config, options, **ways) for options in config.logs]
        }
        if config.topics:
            # Here, so that a job without topics need not import what speaks to Kafka.
            from pipeline.job.topic_replication import TopicReplication

            members[KAFKA_LOG] = [TopicReplication(spark, config, one, **ways) for one in config.asked_topics()]
        self._groups = [
            LogGroup(spark, config, table, of_table, available_now=available_now, on_step=self._stepped)
            for table, of_table in members.items()
            if of_table
        ]
        self.logs = [one for of_table in members.values() for one in of_table]
        if not self.logs:
            raise ConfigurationError(
                "there is nothing to replicate", expected="a topic that matches a pattern of [[topics]]", found="none"
            )
        self.tables = TypedTables(spark, config)
        self._catalog = Catalogued(spark, config)
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(min(len(self.logs), AT_ONCE), "looks after a log")
        self._busy: dict[Replication, Future[None]] = {}

    def _stepped(self, step: Step) -> None:
        if step is Step.COMMIT:
            self.tables.look_soon()
        self._on_step(step)

    def start(self, on_poll: OnPoll | None = None, *, poll_interval_s: float = 0.05) -> None:
        """Start every log, side by side, and its group, until `request_stop` or `on_poll` says False, as in `run`.

        Those that run already are looked after meanwhile. One that cannot start does not keep the others; raises its
        LogtwinError if none can.
        """
        for group in self._groups:
            group.begin()
        for one in self.logs:
            self._busy[one] = self._pool.submit(self._begin, one)
        while not self._stop.is_set() and any(one.phase is Phase.STARTING for one in self.logs):
            if not self._look(on_poll):
                break
            self._stop.wait(poll_interval_s)
        if all(one.phase is Phase.FAILED for one in self.logs):
            self.close()
            self._raise_first()
        if not self._stop.is_set():
            self._poll_groups()
            if not self.available_now:
                self.tables.start()
                self._catalog.start()

    def _begin(self, one: Replication) -> None:
        try:
            one.start()
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is this log's
            error = of_log(failure, one.id)
            # A job of one log has nothing to wait for: whoever started it should know at once. But what is in its
            # way for a while, by its own replica's doing, it waits for.
            is_alone = len(self.logs) == 1 and not isinstance(error, NotAlone)
            one.fail(error, for_good=self.available_now or is_alone)
            self._announce(one)

    def run(self, on_poll: OnPoll | None = None, *, poll_interval_s: float = 0.25) -> None:
        """Until every log has ended, `on_poll` says False, or `request_stop`. Raises the first log's error, if any.

        A run to the end of the logs brings the typed tables there, too, and all tables into the catalog. Raises the
        first error of that after those.
        """
        unmade: LogtwinError | None = None
        try:
            while not self._stop.is_set() and self._look(on_poll):
                self._stop.wait(poll_interval_s)
            if self.available_now:
                unmade = self.tables.bring(lambda: not self._stop.is_set())
                unlisted = None if self._stop.is_set() else self._catalog.bring()
                unmade = unmade or unlisted
        finally:
            self.close()
        self._raise_first()
        if unmade is not None:
            raise unmade

    def _look(self, on_poll: OnPoll | None) -> bool:
        """Look at every log and show them; whether there is a reason to go on."""
        all_ended = self.poll()
        is_wanted = on_poll is None or on_poll(self.progress())
        return is_wanted and not all_ended

    def poll(self) -> bool:
        """Look at every log; whether all of them have ended.

        Each is looked at in a thread of its own, and not while it still is: a master that keeps one waiting keeps
        no other log.
        """
        for one in self.logs:
            before = self._busy.get(one)
            if one.phase not in ENDED and (before is None or before.done()):
                self._raise_of(before)
                self._busy[one] = self._pool.submit(self._poll_one, one)
        wait(self._busy.values(), LOOK_S)
        self._poll_groups()
        return all(one.phase in ENDED for one in self.logs)

    def _poll_groups(self) -> None:
        for group in self._groups:
            group.poll(time.monotonic())

    def _poll_one(self, one: Replication) -> None:
        """Says at once what ended one while others go on. What is no LogtwinError is a defect, and ends the log."""
        try:
            one.poll(time.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
            one.fail(of_log(error, one.id), for_good=True)
        self._announce(one)

    def _raise_of(self, done: Future[None] | None) -> None:
        """A log that could not even be ended ends the job."""
        if done is not None:
            done.result()

    def _announce(self, failed: Replication) -> None:
        if len(self.logs) > 1 and failed.phase is Phase.FAILED:
            log.error("%s", failed.error)

    def _raise_first(self) -> None:
        for one in self.logs:
            if one.error is not None:
                raise one.error

    def request_stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self._stop.set()

    def progress(self) -> list[Progress]:
        return [one.progress() for one in self.logs]

    def close(self) -> None:
        """End every query and session. Idempotent."""
        self._stop.set()
        self.tables.stop()
        self._catalog.stop()
        wait(self._busy.values(), CLOSE_S)
        for group in self._groups:
            group.stop()
        with ThreadPoolExecutor(min(len(self.logs), AT_ONCE)) as pool:
            last_fetch_by_s = time.monotonic() + LAST_FETCH_S
            list(pool.map(lambda one: one.stop(last_fetch_by_s), self.logs))
        self._pool.shutdown(wait=False, cancel_futures=True)
