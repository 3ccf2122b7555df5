"""Updates the typed tables of a job, beside the replication of the logs.

One thread updates all of them. It looks at the log tables after each batch of the job, and now and then in case another
job writes them. If several tables have much to do, it takes a step of each in turn. No producer waits for it. A table
that fails holds up neither a log nor another table: it is tried again, after a longer wait each time. With
available_now the tables are updated after the logs have reached their ends.

Of several shards one updates each table, from what all of them have committed: a step depends on the tables alone.

Tables that an entry of many finds in its events (`pipeline/config/found.py`) join the others.

If a log goes back, a table with a key is rebuilt beside the existing one, step by step, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.config.found import found_tables
from pipeline.config.typed_tables import TypedTableConfig
from pipeline.monitoring.progress import TableProgress
from sinks.delta.commits import FIRST_WAIT_S, doubled_s
from sinks.typed.definition import Definition
from sinks.typed.rebuild import TypedRebuild
from sinks.typed.step.follower import TypedFollower
from sources.errors import ConfigurationError, LogtwinError, ReplicaError, RowsReplaced, of_log
from sources.shards import TABLE

log = logging.getLogger(__name__)

_FIND_S = 10.0
"""How often it is looked which tables were found since."""
_JOIN_S = 30.0
"""How long the end of a job waits for a step that is under way; nothing is lost if it does not finish."""


@dataclass
class _Table:
    """One typed table and its progress. `there_at_s`: when it was last up to date with its logs, or the run began."""

    wanted: Definition
    follower: TypedFollower
    anew: TypedRebuild | None = None
    there_at_s: float = field(default_factory=time.monotonic)
    rows: int = 0
    unfit_values: int = 0
    error: LogtwinError | None = None
    tries: int = 0
    again_at_s: float = 0.0
    unmatched: tuple[str, ...] = ()
    flaws: tuple[ConfigurationError, ...] = ()

    @property
    def errors(self) -> list[LogtwinError]:
        """The errors that keep it from being updated, and those that keep its found tables from being made."""
        return [*([] if self.error is None else [self.error]), *self.flaws]

    def progress(self) -> TableProgress:
        return TableProgress(
            self.wanted.name,
            self.rows,
            self.unfit_values,
            time.monotonic() - self.there_at_s,
            next(iter(self.errors), None),
        )


class TypedTables:
    """The typed tables of a job. Driver only. Call either `start` and `stop`, or `bring`."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._warehouse = config.warehouse
        self._tables: list[_Table] = []
        # the entries by table: these keep the definition that they have now, whatever becomes of a schema file
        self._own = {one.table_name: one.name for one in config.tables}
        self._add(config.tables)
        self._finds = any(one.is_of_many for one in config.tables)
        self._find_error: LogtwinError | None = None
        self._find_at_s = 0.0
        self._every_s = config.trigger_interval_s
        self._retry_wait_max_s = config.retry_wait_max_s
        self._stop = threading.Event()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Follow the logs from now on, in a thread of its own."""
        if self._tables or self._finds:
            self._thread = threading.Thread(target=self._run, name="typed tables", daemon=True)
            self._thread.start()

    def look_soon(self) -> None:
        """Look for new commits of the log tables soon. From any thread."""
        self._news.set()

    def bring(self, is_wanted: Callable[[], bool]) -> list[LogtwinError]:
        """Bring every table up to date with its logs. Returns the errors of those that failed."""
        for finds in (True, False):
            for one in [one for one in self._tables if one.wanted.reading.finds_tables is finds]:
                while is_wanted() and self._try(one, self._step):
                    pass
                if one.error is None:
                    self._try(one, self._settle)
            if finds:
                self._find()
        errors = [error for one in self._tables for error in one.errors]
        return errors if self._find_error is None else [*errors, self._find_error]

    def stop(self) -> None:
        """Stop between two steps. Idempotent."""
        self._stop.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def progress(self) -> list[TableProgress]:
        return [one.progress() for one in self._tables]

    def _run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "typed tables")  # of this thread
        self._find()
        for one in self._tables:
            if not self._stop.is_set():
                self._told(one, self._prepare)  # while the logs still begin
        is_busy = False
        while not self._stop.is_set():
            if not is_busy:
                self._news.wait(self._every_s)
            self._news.clear()
            is_busy = False
            for one in self._tables:
                if not self._stop.is_set() and time.monotonic() >= one.again_at_s:
                    is_busy |= self._told(one, self._step)
            if time.monotonic() >= self._find_at_s:
                is_busy |= self._find()
        for one in self._tables:
            self._told(one, self._settle)

    def _add(self, entries: Iterable[TypedTableConfig]) -> None:
        there = {one.wanted.name: one for one in self._tables}
        for entry in entries:
            if not self._config.serves(f"{TABLE}{entry.table_name}"):
                continue
            wanted = entry.definition()
            one = there.get(wanted.name)
            if one is None:
                self._tables.append(_Table(wanted, self._follower(wanted)))
            elif one.wanted != wanted:  # it has another key at its source, or comes in more topics
                one.wanted, one.follower, one.anew = wanted, self._follower(wanted), None

    def _find(self) -> bool:
        """Follow tables that were found since the last call. Returns whether there are any."""
        if not self._finds:
            return False
        self._find_at_s = time.monotonic() + _FIND_S
        before, there = self._find_error, len(self._tables)
        try:
            found = found_tables(self._config)
            self._add(one for one in found.tables if one.table_name not in self._own)
        except Exception as failure:  # noqa: BLE001 - those that are known go on
            self._find_error = of_log(failure, "typed tables")
            if str(before) != str(self._find_error):
                log.error("%s; the tables that are known go on", self._find_error)
            return False
        self._find_error = None
        for one in self._tables:
            told, one.flaws = {*map(str, one.flaws)}, found.flaws.get(self._own.get(one.wanted.name, ""), ())
            for flaw in one.flaws:
                if str(flaw) not in told:
                    log.error("%s; logs and other tables go on", flaw)
        return len(self._tables) > there

    def _told(self, one: _Table, work: Callable[[_Table], bool]) -> bool:
        """Call `_try`; log once what keeps the table from being updated, and once that it is updated again."""
        before = one.error
        has_more = self._try(one, work)
        if one.error is not None and (before is None or str(before) != str(one.error)):
            log.error("%s; the logs go on, and the table will be tried again", one.error)
        elif one.error is None and before is not None:
            log.warning("the typed table %s is updated again", one.wanted.name)
        return has_more

    def _try(self, one: _Table, work: Callable[[_Table], bool]) -> bool:
        """Return what `work` does; False if it fails."""
        try:
            has_more = work(one)
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is this table's
            wait_s = doubled_s(FIRST_WAIT_S, one.tries, self._retry_wait_max_s)
            one.error, one.tries = of_log(failure, f"typed table {one.wanted.name}"), one.tries + 1
            if isinstance(one.error, ReplicaError) and not one.error.is_transient:
                one.anew = None  # the unfinished table may be broken, for example by two jobs at once: start again
            one.again_at_s = time.monotonic() + wait_s
            return False
        one.error, one.tries = None, 0
        return has_more

    def _step(self, one: _Table) -> bool:
        """Take one step. Returns whether there is more to do at once."""
        looked_at_s = time.monotonic()
        try:
            step = (one.anew or one).follower.step()
        except RowsReplaced as error:
            log.warning("%s", error)
            one.anew = None  # if one was being built, the log went back again
            one.anew = TypedRebuild.begun(self._spark, self._warehouse, one.wanted)
            return True
        if step is not None:
            one.rows += max(0, step.rows)  # the total of a run never falls, even if a log lost rows
            one.unfit_values += step.unfit_values
            if one.wanted.reading.finds_tables:
                self._find_at_s = 0.0
        if step is not None and not step.is_last:
            return True
        if one.anew is not None:
            self._exchange(one, one.anew)
            return True
        one.there_at_s = looked_at_s
        self._tell_unmatched(one)
        return False

    def _tell_unmatched(self, one: _Table) -> None:
        """Log once the topics without a message, once the table has seen all of its logs."""
        before, one.unmatched = one.unmatched, one.follower.unmatched
        if one.unmatched and one.unmatched != before:
            log.warning(
                "the typed table %s: no message of %s so far; logtwin tables check %s says why",
                one.wanted.name, ", ".join(one.unmatched), one.wanted.name,
            )  # fmt: skip

    def _exchange(self, one: _Table, anew: TypedRebuild) -> None:
        one.anew = None
        anew.exchange()
        one.follower = self._follower(one.wanted)
        log.warning("the typed table %s was rebuilt", one.wanted.name)

    def _prepare(self, one: _Table) -> bool:
        one.follower.prepare()
        return False

    def _settle(self, one: _Table) -> bool:
        one.follower.settle()
        return False

    def _follower(self, wanted: Definition) -> TypedFollower:
        return TypedFollower(self._spark, self._warehouse, wanted)
