"""The life cycle of what is replicated, a log or all partitions of a topic, whatever its master is.

Its logs are those of `pipeline/job/replicated_logs.py`, and `pipeline/job/log_group.py` reads them. It goes through the
phases of `Phase`::

    starting ──▶ running | waiting
    running  ──▶ waiting | done       done: everything was there (--available-now)
    waiting  ──▶ running | waiting    the master or the tables' storage went away: tried again for ever, with a
                                      warning. Or the master no longer holds what comes next: that was recorded,
                                      and the log goes on after it. Or a master that overrules has a different
                                      history: the replica went back to it.
    any      ──▶ failed | stopped     an error that only an operator can resolve, such as another job having the log;
                                      or a requested stop. Nothing follows an end.

An error of one partition is its own (`set_aside.py`), at a start, too, unless errors keep all of a topic's from being
read. The next commit, or a look at the table, finds out that another run owns the log. From then on the session must
not report to the master; nor to one other than was replicated: that ends the log. Every phase is published at once,
before the claim.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.metadata_sync import MetadataSync
from pipeline.job.replicated_logs import LOOK_AGAIN_S, ReplicatedLogs
from pipeline.job.set_aside import SetAside
from pipeline.monitoring.progress import ENDED, LEADS_TO, Phase, Progress, of_job
from pipeline.monitoring.publisher import OtherJobs, Publisher
from pipeline.monitoring.run_state import FRESH_S, RunState
from pipeline.monitoring.single_connection import check_alone
from sinks.batch.group import Outcome
from sinks.batch.proof import BatchResult, Totals, in_all
from sinks.batch.replica import Opening, Replica
from sinks.delta.commits import FIRST_WAIT_S, doubled_s
from sources.errors import HeldElsewhere, LogtwinError, NoSuchTopic, TakenOver, WorkerLost
from sources.group.standing import ListedLog, Seen
from sources.offsets import Offset
from sources.registry import FollowedOptions

log = logging.getLogger(__name__)

LOST_WORKERS = 5  # lost in a row before available_now gives up: many logs that start at once can overload the machine


class Replication:
    """Replicates the logs of one master. Driver only.

    Call `start`, then `poll` now and then until the phase is one of ENDED, then `stop`.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        options: FollowedOptions,
        *,
        available_now: bool,
        opening: Opening,
        publisher: Publisher,
        take_over: bool = False,
        may_leave: bool = False,
        told: str = "",
    ) -> None:
        """With `may_leave`, a topic that is not there is waited for, as a broker is: a pattern has found it.

        `told` is the error that the job has logged of it, before it started.
        """
        self._spark = spark
        self._config = config
        self.options = options
        self._available_now = available_now
        self._take_over = take_over
        self._may_leave = may_leave
        self._told = told  # the error that was logged last, since it ran
        self.is_unlisted = False  # no server lists it any more, as far as the job knows
        self._writer = opening.writer
        self._is_shard = config.shard is not None
        self._other_jobs = OtherJobs(publisher, options.log_id, is_shard=self._is_shard)
        self._logs = ReplicatedLogs(spark, config, options, opening, self._other_jobs.holding)
        self._publisher = publisher
        self._before: Sequence[RunState] = ()  # what runs said that had the log before
        self._metadata: MetadataSync | None = None
        self._is_open = False
        self.in_use = threading.Lock()  # held while a thread uses the replica's tables
        self.turn = 0  # how often it was started
        self._noted: LogtwinError | None = None  # set by a batch, in Spark's thread
        self._aside = SetAside(self._meet_alone, config.retry_wait_max_s)
        self._phase = Phase.STARTING
        self._going = threading.Lock()  # the job's thread may end it while another thread still starts it
        self._error: LogtwinError | None = None
        self._first: Offset | None = None
        self._retry_at_s = 0.0
        self._retries = 0
        self._totals = Totals()
        self._failures: Counter[str] = Counter()

    @property
    def id(self) -> str:
        return self.options.id

    @property
    def replicas(self) -> Mapping[str, Replica]:
        """The replicas of its logs that are known so far, by log id."""
        return self._logs.replicas

    @property
    def places(self) -> dict[str, ListedLog]:
        """The positions of the logs to be read, for the planner. Empty before they are open."""
        states = {str(log_id): state for log_id, state in self._logs.states.items()}
        return {
            log_id: ListedLog(state.offset, self.turn, state.identity)
            for log_id, state in states.items()
            if log_id not in self._aside
        }

    def hear(self, seen: Seen, now_s: float) -> None:
        """Take the bounds that the planner has `seen`, of any logs; not while this one is being started."""
        self._logs.hear(seen, self.turn, now_s, self._aside)

    def progress(self) -> Progress:
        """The progress now. From any thread."""
        # Read in this order, because a batch moves them in the reverse one: so each is at most the next.
        logs, totals = self._logs, self._totals
        session, told = logs.session.state, logs.session.acknowledged
        offsets = logs.offsets()
        position = Offset(sum(offsets.values())) if offsets else None
        received = logs.received()
        watch, bounds = logs.watch, logs.watch.bounds
        seen = [offset for offset in (None if bounds is None else bounds.end, position) if offset is not None]
        return of_job(
            log_id=self.id,
            unlisted=self.is_unlisted,
            phase=self._phase,
            role=logs.master.role,
            master=logs.master.address,
            master_role=watch.role,
            master_epoch=watch.epoch,
            confirmed=watch.confirmed,
            started_at=self._first,
            received=received,
            position=position,
            session=session,
            master_minimum=None if bounds is None else bounds.start,
            master_maximum=max(seen, default=None),
            lag_s=watch.lag_s(position, time.monotonic()),
            until_loss=watch.until_loss(position, logs.newest_stored_us()),
            incidents=logs.losses.counts,
            partitions=logs.partitions(offsets, told),
            **totals.facts(),
            failures=dict(self._failures),
            error=self._error,
        )

    def start(self) -> None:
        """Claim the log and have it read from now on. Raises LogtwinError; then nothing was started."""
        if not self._is_open:
            self._before = self._other_jobs.enter(self.progress, take_over=self._take_over)
            self._take_over = False  # only once: a job that takes the log back keeps it
        with self.in_use:
            self._check_master()
            self._aside.begin_again()
            position = self._logs.claim(waits=self._available_now)
            self._is_open = True
            if self._first is None:
                self._first = position
            self._aside.begin_without(self._logs.resume(self._aside), self.replicas)
            brought = self._logs.bring_slow()
            self.took([] if brought is None else [brought])
            self._other_jobs.tell(self._logs.elsewhere)
        self._noted, self._error = None, self._aside.error
        self.turn += 1
        if self._go_to(Phase.RUNNING):
            self._start_metadata()
        else:
            self._logs.session.close()  # stopped meanwhile: a log that is not read must not acknowledge anything

    def _check_master(self) -> None:
        """Make sure that the master can be replicated, and that nobody else of this replica is counted there."""
        master = self._logs.master
        master.check()
        counted_for_s = master.counted_for_s()
        if counted_for_s is not None:
            check_alone(self._config.warehouse, master.id, self._writer.run, counted_for_s, self._before)

    def _start_metadata(self) -> None:
        """Start fetching metadata, once in a run, when this run owns the log."""
        if self._metadata is None:
            self._metadata = MetadataSync.started(self._spark, self._config, self._logs.master, self.progress)

    def is_due(self, now_s: float) -> bool:
        """Whether `poll` has anything to do by now. Asks nobody."""
        if self._phase in ENDED:
            return False
        if self._noted is not None or self._logs.session.failure is not None:
            return True
        if self._phase is Phase.WAITING:
            return now_s >= self._retry_at_s
        return self._phase is Phase.RUNNING and (
            self._aside.is_due(now_s) or self._logs.watch.is_due(now_s) or self._logs.has_news
        )

    def poll(self, now_s: float) -> Phase:
        """Handle errors, ask the master, and start again if that is due. Returns the phase after that.

        `now_s` comes from `time.monotonic`.
        """
        disproof, noted = self._logs.session.failure, self._noted
        if self._phase in ENDED:
            return self._phase
        if disproof is not None:
            self._end_disproven(disproof)
        elif noted is not None:
            with self.in_use:
                is_passing = isinstance(noted, WorkerLost) and self._retries < LOST_WORKERS
                self.fail(noted, for_good=self._available_now and not is_passing)
                self._noted = None  # not earlier: until the phase changes, this keeps the log from being read
        elif self._phase is Phase.WAITING and now_s >= self._retry_at_s:
            try:
                self.start()
            except LogtwinError as error:
                self.fail(error, for_good=self._available_now)
        elif self._phase is Phase.RUNNING:
            self._ask_master(now_s)
        return self._phase

    def _ask_master(self, now_s: float) -> None:
        """Ask the master if that is due, decide about single partitions, and add those gained. Raises nothing."""
        self._logs.watch.poll(now_s)
        is_due = self._aside.is_due(now_s)
        if not (is_due or self._logs.has_news) or not self.in_use.acquire(blocking=False):
            return
        try:
            if is_due:
                self._decide_aside(now_s)
            else:
                self._logs.add()
                self._other_jobs.tell(self._logs.elsewhere)
        except LogtwinError as error:
            self.note(error)
        finally:
            self.in_use.release()

    def _decide_aside(self, now_s: float) -> None:
        """Decide about partitions that errors keep from being read; about the topic, if these are all of them."""
        if (error := self._aside.of_all(self.replicas)) is not None:
            self.fail(error, for_good=self._available_now)
            return
        self._logs.ask_for(self._aside.undecided)
        self._aside.decide(now_s, can_try_again=not self._available_now)
        self.turn += 1  # not later: a query that ended meanwhile has not read all of it
        self._aside.settle()
        self._error = self._aside.error

    def _meet_alone(self, error: LogtwinError) -> LogtwinError | None:
        """Handle the `error` of one partition. Returns the error that is left; None if none is."""
        self._blame(error)
        try:
            return None if self._logs.meet_alone(error) else self._error
        except LogtwinError as failure:
            self._blame(failure)
            self.note(failure)  # it may be the topic's
            return failure

    def _end_disproven(self, error: LogtwinError) -> None:
        if not self.in_use.acquire(blocking=False):
            return  # a batch is under way, and checks the master itself; the next poll looks again
        try:
            self.fail(error, for_good=True)
        finally:
            self.in_use.release()

    def note(self, error: LogtwinError) -> None:
        """Note an `error` that keeps its partition, or all, from being read; the next poll decides. From any thread."""
        is_of_one = self._logs.master.traits.gains_logs and str(error.log) in self.replicas
        if not is_of_one or not self._aside.note(str(error.log), error):
            self._noted = error

    @property
    def is_read(self) -> bool:
        """Whether the next batch may read it."""
        return self._phase is Phase.RUNNING and self._noted is None and self._aside.is_decided

    def came_to(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take the outcome of a batch for each of its logs that was in it."""
        self.took([one for one in outcomes.values() if isinstance(one, BatchResult)])
        for log_id, outcome in outcomes.items():
            if isinstance(outcome, LogtwinError):
                self.note(outcome)
            elif self._aside.moved(log_id):
                self._error = self._aside.error

    def took(self, results: Sequence[BatchResult]) -> None:
        """Count a batch: `results` has one for each of its logs that was in the batch, with or without new records."""
        if not results:
            return
        result = in_all(results)
        self._logs.losses.count(incident.condition for incident in result.incidents)
        self._retries = 0
        self._totals = self._totals.plus(result)
        if self._first is None:
            self._first = result.range.start

    def end(self) -> None:
        """End it. The session ends, too: a log that is not read must not count as a replica."""
        self._logs.session.close()
        if self._available_now and self._logs.elsewhere:
            self._error = self._other_jobs.waited_for(self._logs.elsewhere)
        self._go_to(Phase.STOPPED if not self._available_now else Phase.FAILED if self._aside else Phase.DONE)

    def stop(self, last_fetch_by_s: float) -> None:
        """End the session, once nothing reads the log any more; that sends the last acknowledgement. Idempotent.

        If all is well, metadata is fetched once more then, until `last_fetch_by_s` of `time.monotonic`.
        """
        has_ended_well = self._phase in (Phase.RUNNING, Phase.DONE)
        self._logs.session.close()
        if self._metadata is not None and has_ended_well:
            self._metadata.finish(last_fetch_by_s)
            self._metadata = None
        elif self._metadata is not None:
            self._metadata.stop()
        self._go_to(Phase.STOPPED)

    @property
    def phase(self) -> Phase:
        return self._phase

    def _go_to(self, phase: Phase) -> bool:
        """Change the phase, unless it has ended. Returns whether it changed.

        Raises RuntimeError, a defect, if LEADS_TO does not allow the change.
        """
        with self._going:
            if self._phase in ENDED:
                return False
            if phase not in LEADS_TO[self._phase]:
                raise RuntimeError(f"{self.id} cannot go from {self._phase.value} to {phase.value}")
            self._phase = phase
            if phase is Phase.RUNNING:
                self._told = ""
        self._publisher.changed(self.id)
        return True

    @property
    def error(self) -> LogtwinError | None:
        """The error that ended it, or that it waits out."""
        return self._error

    def fail(self, error: LogtwinError, *, for_good: bool) -> None:
        """Handle an `error` that ended the log or kept it from starting.

        It ends the log for good; or makes it wait until the master can be asked again; or only until a loss was
        recorded and passed, or the replica repaired. Does nothing if the log has already ended.
        """
        if self._phase in ENDED:
            return
        is_held_on = isinstance(error, HeldElsewhere) and isinstance(self._error, HeldElsewhere)
        if not is_held_on:
            self._blame(error)
        try:
            if self._is_shard and isinstance(error, TakenOver) and not self._available_now and self._let_go():
                return
            is_passed = self._logs.meet(error)
        except LogtwinError as failure:
            self._blame(failure)
            error, is_passed = failure, False
        if is_passed:
            self._wait(0.0)
        elif for_good or not (error.is_transient or (self._may_leave and isinstance(error, NoSuchTopic))):
            self._logs.session.close()
            self._go_to(Phase.FAILED)
        else:
            is_held = isinstance(error, HeldElsewhere)
            wait_s = LOOK_AGAIN_S if is_held else doubled_s(FIRST_WAIT_S, self._retries, self._config.retry_wait_max_s)
            self._retries += 1
            self._wait(wait_s)
            is_told = is_held_on or str(error) == self._told  # the line a minute says it again
            self._told = str(error)
            log.log(logging.DEBUG if is_told else logging.WARNING, "%s; trying again in %.0f s", error, wait_s)

    def _let_go(self) -> bool:
        """Wait for logs that another run has taken; other partitions go on. Returns whether there are any."""
        if not self._logs.let_go():
            return False
        wait_s = 0.0
        if not self._logs.master.traits.gains_logs:
            self._is_open = False
            self._other_jobs.leave()
            wait_s = FRESH_S  # if nobody sees that run, the two do not take it in turn all the time
        self._wait(wait_s)
        return True

    def _blame(self, error: LogtwinError) -> None:
        self._failures[type(error).__name__] += 1
        self._error = self._logs.explained(error)

    def _wait(self, wait_s: float) -> None:
        self._retry_at_s = time.monotonic() + wait_s
        self._go_to(Phase.WAITING)
