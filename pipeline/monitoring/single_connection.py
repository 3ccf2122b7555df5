"""Lets only one process of a replica connect to a master that counts connections (`MasterLog.counted_for_s`).

Inside a process the session and its tasks take turns. Between processes, the job of a log and the verbs that read from
its master (verify, backfill, repair) announce themselves in small files that they renew
(`pipeline/monitoring/run_state.py`):

    <warehouse>/_runs/<run id>.json                      the job
    <warehouse>/_runs/_reading/<log id>/<run id>.json    a verb, for as long as it reads

Each writes its own file before it reads those of the others. So if two begin at once, at least one of them sees the
other (as in Dekker's algorithm), maybe both. A verb is refused if a job or another verb is there; a job waits for the
end of the verb, as for a master that is away.

A killed process counts as alive until its file is out of date or, on the same host, until its process is seen to be
gone. In the second case the operating system has closed its connections. Otherwise the master may count them for some
time after the last write (`forgotten_at`), as it may those of a process that failed. The next process waits that long.

With masters that count replicas, or nothing at all, nothing is written and nobody waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import PUBLISH_EVERY_S, Run, RunFile, RunState, forgotten_at, process_space, runs_of
from sinks.state.fence import this_writer
from sinks.state.log_state import Writer
from sources.errors import AlreadyRunning, NotAlone
from sources.master import MasterLog
from sources.offsets import LogId

_log = logging.getLogger(__name__)


@contextmanager
def alone_at(warehouse: str, master: MasterLog, verb: str, *, take_over: bool = False) -> Iterator[None]:
    """Wraps all that ``logtwin <verb>`` reads from `master` for the replica in `warehouse`.

    With `take_over` a job is ignored: it is about to lose its log. Raises AlreadyRunning if a job or another verb may
    be connected to a master that counts it, NotAlone if this verb cannot announce itself, and what asking the master
    raises.
    """
    counted_for_s = master.counted_for_s()
    if counted_for_s is None:
        yield
        return
    words = _Words(warehouse, master.log_id)
    with words.saying(verb) as mine:
        words.await_others(mine, counted_for_s, take_over=take_over)
        mine.reads = True
        yield


def check_alone(warehouse: str, log_id: LogId, run: str, counted_for_s: float, before: Iterable[RunState]) -> None:
    """Check for a job that has announced itself as `run` that no other reader of the replica may be counted.

    `before` is what runs said last that had the log before. Raises NotAlone while another reader may be counted.
    """
    words = _Words(warehouse, log_id)
    if not words.has_said(run):
        raise NotAlone(
            "nobody can see that this job runs, and its master would count a verb that reads beside it",
            log=log_id,
            expected=f"the word of run {run}",
            found="none",
            hint=f"Make {warehouse}/_runs a place that can be written and read. It is tried again.",
        )
    others = [*words.of_verbs(counted_for_s), *(("the job before", one) for one in before)]
    now = datetime.now(UTC)
    for name, other in others:
        left_s = (forgotten_at(other, counted_for_s) - now).total_seconds()
        if left_s > 0:
            raise NotAlone(
                "the master counts connections, and another one of this replica may be counted",
                log=log_id,
                expected="none",
                found=f"{name}, {other.writer}",
                hint=f"It is tried again until that has ended, or, if it was killed, for {left_s:.0f} s.",
            )


class _Words:
    """The files about one log."""

    def __init__(self, warehouse: str, log_id: LogId) -> None:
        self._warehouse = warehouse
        self._log_id = log_id
        self._verbs = f"_reading/{log_id}"

    @contextmanager
    def saying(self, verb: str) -> Iterator[_Mine]:
        """Announce that `verb` of this process reads. Raises NotAlone if that cannot be written."""
        writer = this_writer()
        mine = _Mine(RunFile(self._warehouse, writer.run, self._verbs), writer, self._log_id, verb)
        try:
            mine.say(Phase.RUNNING)
        except OSError as error:
            raise self._unreadable(error) from error
        mine.start()
        try:
            yield mine
        except BaseException:
            mine.end(is_known=not mine.reads)
            raise
        mine.end(is_known=True)

    def has_said(self, run: str) -> bool:
        """Whether the job of `run` has said that it has the log."""
        try:
            said = RunFile(self._warehouse, run).read()
        except OSError as error:
            raise self._unreadable(error) from error
        return said is not None and str(self._log_id) in said.logs

    def of_jobs(self) -> list[tuple[str, RunState]]:
        try:
            found = [run.of(str(self._log_id)) for run in runs_of(self._warehouse)]
        except OSError as error:
            raise self._unreadable(error) from error
        return [("its job", one) for one in found if one is not None]

    def of_verbs(self, counted_for_s: float) -> list[tuple[str, RunState]]:
        """The verbs that may still be counted, each with its name. Removes files that are out of date."""
        now = datetime.now(UTC)
        found = []
        try:
            for file in RunFile.below(self._warehouse, self._verbs):
                run = file.read()
                said = None if run is None else run.of(str(self._log_id))
                if said is not None and (said.is_live(now) or now < forgotten_at(said, counted_for_s)):
                    found.append((f"logtwin {said.facts.get('verb')}", said))
                elif said is not None:
                    file.remove()
        except OSError as error:
            raise self._unreadable(error) from error
        return found

    def await_others(self, mine: _Mine, counted_for_s: float, *, take_over: bool) -> None:
        """Wait until no other reader can be counted. Raises AlreadyRunning if one is alive."""
        while True:
            others = [*self.of_verbs(counted_for_s), *([] if take_over else self.of_jobs())]
            now, left_s = datetime.now(UTC), 0.0
            for name, other in others:
                if other.writer.run == mine.writer.run:
                    continue
                if other.is_live(now):
                    raise self._refused(mine, name, other)
                left_s = max(left_s, (forgotten_at(other, counted_for_s) - now).total_seconds())
            if left_s <= 0:
                return
            _log.warning("%s: its master may count a connection that is gone for another %.0f s", self._log_id, left_s)
            time.sleep(min(left_s, PUBLISH_EVERY_S))

    def _refused(self, mine: _Mine, name: str, other: RunState) -> AlreadyRunning:
        return AlreadyRunning(
            f"the master counts connections, and {name} has one: that of logtwin {mine.verb} would count as a replica",
            log=self._log_id,
            expected="nothing else of this replica that reads from its master (inSyncReplicas above 2)",
            found=f"{name}, {other.writer}",
            hint="Wait for its end or stop it; or compare with, or fill from, files (--path) or a slave's HA port.",
        )

    def _unreadable(self, error: OSError) -> NotAlone:
        return NotAlone(
            "nobody can tell whether something else of this replica reads from a master that counts connections",
            log=self._log_id,
            expected=f"a folder {self._warehouse}/_runs that can be read and written",
            found=error,
        )


class _Mine:
    """The file of a verb of this process, renewed while it reads. `reads`: it may have connected."""

    def __init__(self, file: RunFile, writer: Writer, log_id: LogId, verb: str) -> None:
        self.writer = writer
        self._log_id = log_id
        self._since = datetime.now(UTC)
        self.verb = verb
        self.reads = False
        self._file = file
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"says that {verb} reads", daemon=True)

    def say(self, phase: Phase) -> None:
        """Write the file with `phase`. Raises OSError."""
        said = {"phase": phase.value, "begun_at": self._since.isoformat(), "verb": self.verb}
        self._file.write(
            Run(
                writer=self.writer,
                process_space=process_space(),
                updated_at=datetime.now(UTC),
                logs={str(self._log_id): said},
            )
        )

    def start(self) -> None:
        self._thread.start()

    def end(self, *, is_known: bool) -> None:
        """End the announcement. `is_known`: the master knows, too; otherwise others wait until it must have noticed."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):  # if it stays, it is out of date in a moment
            if is_known:
                self._file.remove()
            else:
                self.say(Phase.FAILED)

    def _renew(self) -> None:
        while not self._ended.wait(PUBLISH_EVERY_S):
            try:
                self.say(Phase.RUNNING)
            except OSError as error:
                _log.warning("others cannot see that logtwin %s reads: %s", self.verb, error)
