"""Replicates every log and topic of a configuration side by side. What happens to one does not affect the others."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TypedDict

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.config.found import found_for_job
from pipeline.job.catalog import Catalogued
from pipeline.job.log_group import LogGroup
from pipeline.job.replication import Replication
from pipeline.job.roll_call import News, RollCall
from pipeline.job.typed_tables import TypedTables
from pipeline.monitoring.progress import ENDED, Phase, Progress
from pipeline.monitoring.publisher import Publisher
from pipeline.system.processes import prepare_for_many_files
from sinks.batch.proof import BatchStep, no_step
from sinks.batch.replica import Opening
from sinks.tables import TableSpec, log_table
from sources.discovery import matched
from sources.errors import HeldElsewhere, LogtwinError, NotAlone, of_log
from sources.offsets import LogId
from sources.registry import FollowedOptions

log = logging.getLogger(__name__)

AT_ONCE = 64
"""How many logs are polled at the same time, at most: each may wait for its master."""

STARTED_AT_ONCE = 256
"""How many are started at the same time, at most: those that wait to be claimed are claimed in one commit."""

LOOK_S = 0.2
"""How long a look at all logs waits for those whose masters do not answer at once."""

SHOWN_SHARE = 10
"""Showing the progress takes at most one part in this many of the time: for a thousand logs it takes 0.1 s."""

SHOWN_WITHIN_S = 5.0
"""How long after the last time it is shown again, whatever that took."""

LAST_FETCH_S = 5.0
"""How long the end of a job waits for the masters' metadata, for all logs together."""

CLOSE_S = 10.0
"""How long the end of a job waits for logs that are being started or polled."""

OnPoll = Callable[[list[Progress]], bool]
"""Receives the progress of every log now and then, and at the end; returns whether to go on."""


class _Ways(TypedDict):
    """Arguments that all replications of a job share."""

    available_now: bool
    opening: Opening
    publisher: Publisher


class Job:
    """Replicates every log and topic of a configuration; those of a table form one group.

    If the configuration has patterns, those that come while the job runs are added to it, unless `available_now`. With
    `take_over` it also replicates logs that another job replicates now; that job loses them. Raises as `found_for_job`.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        *,
        available_now: bool,
        take_over: bool = False,
        on_step: Callable[[BatchStep], None] | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        """`told` are errors by log id, which were logged before the start."""
        prepare_for_many_files(spark)
        self.available_now = available_now
        self._on_step = on_step or no_step
        self._spark = spark
        self._config = config
        opening = Opening()
        shard = None if config.shard is None else str(config.shard)
        self._told = told or {}
        self._publisher = Publisher(config.warehouse, opening.writer, shard)
        self._ways: _Ways = {"available_now": available_now, "opening": opening, "publisher": self._publisher}
        self._named = matched([one for one in (*config.log_entries, *config.topics) if not one.is_pattern], ()).keys()
        found = found_for_job(config, available_now=available_now)
        followed: list[FollowedOptions] = [*found.logs, *found.named_topics]
        self.logs = [self._replication(one, take_over=take_over) for one in followed]
        members: dict[TableSpec, list[Replication]] = {}
        for one in self.logs:
            members.setdefault(log_table(one.options.log_id), []).append(one)
        self._groups = {table: self._group(table, of_table) for table, of_table in members.items()}
        self._roll_call = RollCall(config) if config.has_patterns and not available_now else None
        self._unlisted: Set[LogId] = frozenset()
        self.tables = TypedTables(spark, config)
        self._catalog = Catalogued(spark, config)
        self._show_at_s = 0.0
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE, "looks after a log")
        self._starting = ThreadPoolExecutor(STARTED_AT_ONCE, "starts a log")
        self._busy: dict[Replication, Future[None]] = {}  # those that are being started or polled

    def _replication(self, options: FollowedOptions, *, take_over: bool) -> Replication:
        """Raises ConfigurationError."""
        may_leave = options.log_id not in self._named
        told = self._told.get(str(options.log_id), "")
        return Replication(
            self._spark, self._config, options, take_over=take_over, may_leave=may_leave, told=told, **self._ways
        )

    def _group(self, table: TableSpec, members: Sequence[Replication]) -> LogGroup:
        available_now, on_step = self.available_now, self._stepped
        return LogGroup(self._spark, self._config, table, members, available_now=available_now, on_step=on_step)

    def _stepped(self, step: BatchStep) -> None:
        if step is BatchStep.COMMIT:
            self.tables.look_soon()
        self._on_step(step)

    def start(self, on_poll: OnPoll | None = None, *, poll_interval_s: float = 0.05) -> None:
        """Start every log and its group, side by side, until `request_stop` or `on_poll` returns False, as in `run`.

        Logs that already run are polled meanwhile. One that cannot start does not hold up the others. Raises the first
        log's LogtwinError if none can start.
        """
        if self._config.shard is not None:
            self._publisher.begin()
        for group in self._groups.values():
            group.begin()
        for one in self.logs:
            self._busy[one] = self._starting.submit(self._begin, one)
        self._starting.shutdown(wait=False)  # what has been submitted is done, and its threads end
        while not self._stop.is_set() and any(one.phase is Phase.STARTING for one in self.logs):
            if not self._look(on_poll):
                break
            self._stop.wait(poll_interval_s)
        if self.logs and all(one.phase is Phase.FAILED for one in self.logs):
            self.close()
            self._raise_first()
        if not self._stop.is_set():
            self._poll_groups()
            gc.freeze()  # until `close`: of many logs much stays, and the collector would walk through it all the time
            if not self.available_now:
                self.tables.start()
                self._catalog.start()
            if self._roll_call is not None:
                self._roll_call.follow([one.options.log_id for one in self.logs])
                self._roll_call.start()

    def _begin(self, one: Replication) -> None:
        try:
            one.start()
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is this log's
            error = of_log(failure, one.id)
            # A job of one log fails at once, so that whoever started it knows. But it waits for NotAlone: another
            # reader of the same replica, which goes away after a while. What a pattern has found may come back. And
            # that a share has one log is chance.
            is_alone = len(self.logs) == 1 and self._roll_call is None and self._config.shard is None
            is_alone = is_alone and not isinstance(error, NotAlone)
            one.fail(error, for_good=self.available_now or is_alone)
            self._announce(one)

    def run(self, on_poll: OnPoll | None = None, *, poll_interval_s: float = 0.25) -> None:
        """Run until every log has ended, `on_poll` returns False, or `request_stop`. Raises the first log's error.

        With `available_now` it then brings the typed tables up to date, and registers all tables in the catalog. If no
        log failed, it raises the first error of that. Whatever it does not raise is in the job's log.
        """
        unmade: list[LogtwinError] = []
        try:
            while not self._stop.is_set() and self._look(on_poll):
                self._stop.wait(poll_interval_s)
            if self.available_now:
                unmade = self.tables.bring(lambda: not self._stop.is_set())
                unlisted = None if self._stop.is_set() else self._catalog.bring()
                unmade += [] if unlisted is None else [unlisted]
        finally:
            self.close()
        self._raise_first(unmade)

    def _look(self, on_poll: OnPoll | None) -> bool:
        """Poll every log, and show the progress if that is due or the last time. Returns whether to go on."""
        all_ended = self.poll()
        begun_s = time.monotonic()
        if on_poll is None or (begun_s < self._show_at_s and not all_ended):
            return not all_ended
        is_wanted = on_poll(self.progress())
        ended_s = time.monotonic()
        self._show_at_s = ended_s + min((SHOWN_SHARE - 1) * (ended_s - begun_s), SHOWN_WITHIN_S)
        return is_wanted and not all_ended

    def poll(self) -> bool:
        """Poll every log. Returns whether all of them have ended. A shard without logs ends only with available_now.

        One that has something to do does it in a thread of its own: a slow master holds up no other log.
        """
        self._hear_roll_call()
        for one in [one for one, work in self._busy.items() if work.done()]:
            self._busy.pop(one).result()  # it raises if a log could not even be ended, which ends the job
        now_s = time.monotonic()
        for one in self.logs:
            if one not in self._busy and one.is_due(now_s):
                self._busy[one] = self._pool.submit(self._poll_one, one)
        wait(self._busy.values(), LOOK_S)
        self._poll_groups()
        return (bool(self.logs) or self.available_now) and all(one.phase in ENDED for one in self.logs)

    def _hear_roll_call(self) -> None:
        """Begin to follow logs that servers list now and did not before; note those that none lists any more."""
        if self._roll_call is None or (answer := self._roll_call.answer()) is None:
            return
        news = News.of(answer, {one.options.log_id for one in self.logs}, self._unlisted)
        for one in self.logs:
            one.is_unlisted = one.options.log_id in news.unlisted
        for log_id in sorted(news.unlisted - self._unlisted):
            log.warning("%s: no server lists it any more; it waits, and its replica keeps what it has", log_id)
        for log_id in sorted(self._unlisted - news.unlisted):
            log.warning("%s: it is listed again", log_id)
        self._unlisted = news.unlisted
        self._add(news.come.values())
        self._roll_call.follow([one.options.log_id for one in self.logs])

    def _add(self, found: Iterable[FollowedOptions]) -> None:
        """Begin to follow the logs `found`. One that cannot be added now is tried when it is found again."""
        come: dict[TableSpec, list[Replication]] = {}
        for options in found:
            try:
                one = self._replication(options, take_over=False)  # that order is for the logs of its moment
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
                log.error("%s", of_log(error, options.id))
            else:
                come.setdefault(log_table(one.options.log_id), []).append(one)
        for table, members in come.items():
            try:
                self._add_to(table, members)
            except Exception as error:  # noqa: BLE001 - those that run go on
                log.error("%s cannot be followed yet: %s", ", ".join(one.id for one in members), error)

    def _add_to(self, table: TableSpec, members: Sequence[Replication]) -> None:
        if table in self._groups:
            self._groups[table].add(members)
        else:
            self._groups[table] = self._group(table, members)
            self._groups[table].begin()
        self.logs = [*self.logs, *members]
        for one in members:
            log.warning("%s was found, and is replicated from its oldest record on", one.id)
            self._busy[one] = self._pool.submit(self._begin, one)

    def _poll_groups(self) -> None:
        for group in self._groups.values():
            group.poll(time.monotonic())

    def _poll_one(self, one: Replication) -> None:
        """Poll one log, and report at once the error that ended it. Any but a LogtwinError is a defect, and ends it."""
        try:
            one.poll(time.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
            one.fail(of_log(error, one.id), for_good=True)
        self._announce(one)

    def _announce(self, failed: Replication) -> None:
        if len(self.logs) > 1 and failed.phase is Phase.FAILED:
            log.error("%s", failed.error)

    def _raise_first(self, unmade: Sequence[LogtwinError] = ()) -> None:
        """Raise the first error of a log, which the others have told when they failed, or else of `unmade`.

        What no server lists has left, and fails no job by waiting; nor does what another job has, except with
        available_now.
        """
        has_left = {one for one in self.logs if one.is_unlisted and one.phase is not Phase.FAILED}
        found = [one.error for one in self.logs if one.error is not None and one not in has_left]
        held = [one for one in found if isinstance(one, HeldElsewhere)]
        failed = [one for one in found if not isinstance(one, HeldElsewhere)]
        errors = [*failed[:1], *unmade, *(held[:1] if self.available_now else ())]
        for one in errors[1:]:
            log.error("%s", one)
        if errors:
            raise errors[0]

    def request_stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self._stop.set()

    def progress(self) -> list[Progress]:
        return [one.progress() for one in self.logs]

    def close(self) -> None:
        """End every query and session, whatever any of them raises. Idempotent. Raises what the last of them raised."""
        self._stop.set()
        gc.unfreeze()
        with ExitStack() as ending:  # from the last line to the first
            for pool in (self._pool, self._starting):
                ending.callback(pool.shutdown, wait=False, cancel_futures=True)
            ending.callback(self._publisher.close)
            ending.callback(self._stop_logs)
            for group in self._groups.values():
                ending.callback(group.stop)
            ending.callback(wait, self._busy.values(), CLOSE_S)
            ending.callback(self._catalog.stop)
            ending.callback(self.tables.stop)
            if self._roll_call is not None:
                ending.callback(self._roll_call.stop)

    def _stop_logs(self) -> None:
        last_fetch_by_s = time.monotonic() + LAST_FETCH_S
        with ThreadPoolExecutor(max(1, min(len(self.logs), AT_ONCE))) as pool:
            stopping = [pool.submit(one.stop, last_fetch_by_s) for one in self.logs]
        for one in stopping:
            one.result()
