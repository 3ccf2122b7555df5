"""Publishes what a job's run says of itself and its logs (`pipeline/monitoring/run_state.py`), as long as it lives.

Others see by it what it has: a job without shard is refused by them, one of a shard waits. Shards of one configuration
share its logs (sources/shards.py). While their number is changed, jobs of both numbers run, and each meets logs that
another one has. All of this is politeness: which run owns a log, the table decides.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.monitoring.facts import Readers
from pipeline.monitoring.progress import ENDED, Phase, Progress
from pipeline.monitoring.run_state import (
    PUBLISH_EVERY_S,
    Run,
    RunFile,
    RunState,
    check_free,
    process_space,
    runs_of,
    tidy,
)
from sinks.state.log_state import Writer
from sources.errors import AlreadyRunning, HeldElsewhere, of_log
from sources.offsets import LogId, topic_and_number

SOON_S: Final = 0.2
"""How long a changed phase waits for others to be written with it."""

LOOK_AGAIN_S: Final = 1.0
"""For how long what other runs said is taken for what they say: many logs are entered at once."""

_LAST_WORD_S: Final = 5.0
_MOST_NAMED: Final = 10

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Entry:
    """A log of the run. `before`: the words of runs that had it before, except those that it was taken over from."""

    log_id: str
    progress: Callable[[], Progress]
    begun_at: datetime
    known: set[str] = field(default_factory=set)  # the runs that do not stop this one
    before: list[RunState] = field(default_factory=list)
    last: Progress | None = None
    ended_at: datetime | None = None
    said: dict[str, Any] = field(default_factory=dict)

    def look(self) -> None:
        """Note the facts to publish now. Those that did not change are not written again, and an end is final."""
        if self.ended_at is not None:
            return
        now = self.progress()
        if now == self.last:
            return
        phase = now.phase or Phase.STARTING
        facts = {key: value for key, value in now.as_json(Readers.RUN_FILE).items() if value is not None}
        said = {"phase": phase.value, "begun_at": self.begun_at.isoformat(timespec="milliseconds"), **facts}
        if phase in ENDED:
            self.ended_at = datetime.now(UTC)
            said["ended_at"] = self.ended_at.isoformat(timespec="milliseconds")
        self.last, self.said = now, said


class Publisher:
    """Keeps the file of a run up to date, in a thread of its own, so that a waiting job is seen alive.

    It writes the file when a log is entered, soon after `changed`, and every PUBLISH_EVERY_S. Then it asks each log for
    its progress, in its thread; a commit is no reason to. The file ends with `close`.
    """

    def __init__(self, warehouse: str, writer: Writer, shard: str | None = None) -> None:
        self._warehouse = warehouse
        self._writer = writer
        self._shard = shard
        self._file = RunFile(warehouse, writer.run)
        self._news = threading.Condition()  # guards what follows, up to the thread
        self._entries: Mapping[str, _Entry] = {}
        self._changed: set[str] = set()
        self._waits: Mapping[str, Mapping[str, str]] = {}  # of each log or topic, what is waited for, and who has it
        self._entered = 0  # how many logs were entered
        self._written = 0  # how many of these were written
        self._is_ending = False
        self._thread: threading.Thread | None = None
        self._looking = threading.Lock()  # guards what follows
        self._others: Sequence[Run] = ()
        self._looked_at_s = -LOOK_AGAIN_S
        self._has_failed = False

    def begin(self) -> None:
        """Publish that this run lives, also while it has no log: all of its shard may be with others. Idempotent."""
        with self._news:
            if self._thread is None and not self._is_ending:
                self._thread = threading.Thread(target=self._run, name="run file", daemon=True)
                self._thread.start()

    def enter(
        self, log_id: str, progress: Callable[[], Progress], *, take_over: bool, is_shared: bool = False
    ) -> Sequence[RunState]:
        """Publish that this run has a log or topic: before it is claimed, and again each time that this is tried again.

        Returns what runs said of it that had it before, unless it was taken over from them. Raises AlreadyRunning if
        another run that lives has it, unless `take_over`, or it `is_shared`: a topic, of which each has partitions.
        """
        now = datetime.now(UTC)
        entry = self._entries.get(log_id) or _Entry(log_id, progress, now, {self._writer.run})
        for run in self._seen():
            found = run.of(log_id)
            if found is None or run.writer.run in entry.known:
                continue
            if not take_over:
                if is_shared and found.is_live(now):
                    continue
                check_free(found, log_id, now)
                entry.before.append(found)
            entry.known.add(run.writer.run)
        if log_id not in self._entries:
            self._add(entry)
        return entry.before

    def _add(self, entry: _Entry) -> None:
        """Add a log, and wait until the file has it. With many at once, few writes do for all."""
        with self._news:
            if self._is_ending:
                return
            self._entries = {**self._entries, entry.log_id: entry}
            self._entered += 1
            mine = self._entered
            self.begin()
            self._news.notify_all()
            self._news.wait_for(lambda: self._written >= mine)

    def leave(self, log_id: str) -> None:
        """Publish no longer that this run has the log: another one has taken it, and is waited for."""
        with self._news:
            self._entries = {at: one for at, one in self._entries.items() if at != log_id}
        self.changed(log_id)

    def held_by_others(self, topic: str, wanted: Iterable[LogId]) -> dict[LogId, str]:
        """Return those of a topic's partitions that other live runs have, and which run."""
        entry, now = self._entries.get(topic), datetime.now(UTC)
        known = {self._writer.run} if entry is None else entry.known
        states = (run.of(topic) for run in self._seen() if run.writer.run not in known)
        live = [one for one in states if one is not None and one.is_live(now)]
        return {
            log_id: str(one.run)
            for log_id in wanted
            for one in live
            if one.run.shard is None or topic_and_number(log_id)[1] in one.partitions
        }

    def waits_for(self, log_id: str, held: Mapping[LogId, str]) -> None:
        """Publish which parts of a log or topic this run waits for, and which run has each."""
        with self._news:
            self._waits = {**self._waits, log_id: {str(one): who for one, who in held.items()}}

    def changed(self, log_id: str) -> None:
        """Publish soon, because the phase of a log changed. From any thread."""
        with self._news:
            self._changed.add(log_id)
            self._news.notify_all()

    def close(self) -> None:
        """Publish the end of the run, and wait a moment until that is written. Its logs have ended. Idempotent."""
        with self._news:
            self._is_ending = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(_LAST_WORD_S)

    def _run(self) -> None:
        all_due_s, tidied = 0.0, 0
        while True:
            with self._news:
                if self._news.wait_for(lambda: self._is_urgent or bool(self._changed), all_due_s - time.monotonic()):
                    self._news.wait_for(lambda: self._is_urgent, SOON_S)
                entries, is_last, entered = self._entries, self._is_ending, self._entered
                is_all = is_last or time.monotonic() >= all_due_s
                changed, self._changed = self._changed, set()  # before looking, so that a later change is not missed
            for log_id, one in entries.items():
                if is_all or not one.said or log_id in changed:
                    self._look(one)
            self._write(entries, has_ended=is_last)
            with self._news:
                self._written = entered
                self._news.notify_all()
            if is_all:
                all_due_s = time.monotonic() + PUBLISH_EVERY_S
                if tidied < len(entries):
                    tidied = len(entries)
                    self._tidy()
            if is_last:
                return

    @property
    def _is_urgent(self) -> bool:
        return self._is_ending or self._written < self._entered

    def _look(self, entry: _Entry) -> None:
        try:
            entry.look()
        except Exception as failure:  # noqa: BLE001 - without this thread the job would wait for it, or pass for dead
            self._say_once(of_log(failure, entry.log_id))

    def _write(self, entries: Mapping[str, _Entry], *, has_ended: bool) -> None:
        said = Run(
            writer=self._writer,
            process_space=process_space(),
            updated_at=datetime.now(UTC),
            shard=self._shard,
            has_ended=has_ended,
            logs={log_id: one.said for log_id, one in entries.items() if one.said},
            waits_for={} if has_ended else {at: who for each in self._waits.values() for at, who in each.items()},
        )
        try:
            self._file.write(said)
        except Exception as failure:  # noqa: BLE001 - as above
            self._say_once(failure)

    def _tidy(self) -> None:
        try:
            tidy(self._warehouse)
        except Exception as failure:  # noqa: BLE001 - as above
            self._say_once(failure)

    def _seen(self) -> Sequence[Run]:
        """The runs of the warehouse, as read a moment ago."""
        with self._looking:
            if time.monotonic() - self._looked_at_s >= LOOK_AGAIN_S:
                try:
                    self._others = runs_of(self._warehouse)
                except OSError as error:
                    self._say_once(error)
                self._looked_at_s = time.monotonic()
            return self._others

    def _say_once(self, failure: Exception) -> None:
        if not self._has_failed:
            _log.warning("others cannot see all that this job does; nothing else is affected: %s", failure)
        self._has_failed = True


class OtherJobs:
    """The other jobs, as a job sees them that publishes what it has of `master` through `publisher`."""

    def __init__(self, publisher: Publisher, master: LogId, *, is_shard: bool) -> None:
        self._publisher = publisher
        self._master = master
        self._is_shard = is_shard
        self._is_shared = is_shard and master.has_partitions  # of which others may have some
        self._are_ignored = False

    def enter(self, progress: Callable[[], Progress], *, take_over: bool) -> Sequence[RunState]:
        """Call `Publisher.enter`. With `take_over` nobody is waited for until the start ends, which `tell` says.

        Raises AlreadyRunning; HeldElsewhere for a shard.
        """
        self._are_ignored = take_over
        try:
            return self._publisher.enter(str(self._master), progress, take_over=take_over, is_shared=self._is_shared)
        except AlreadyRunning as error:
            if not self._is_shard:
                raise
            self.tell({self._master: str(error.found)})
            raise self.waited_for(str(error.found)) from error

    def leave(self) -> None:
        """Publish no longer that this job has the master's log."""
        self._publisher.leave(str(self._master))

    def holding(self, wanted: Iterable[LogId]) -> Mapping[LogId, str]:
        """Return those of some partitions that other runs have, and which run."""
        if not self._is_shared or self._are_ignored:
            return {}
        return self._publisher.held_by_others(str(self._master), wanted)

    def tell(self, held: Mapping[LogId, str]) -> None:
        """Publish which logs this job waits for, and who has them."""
        self._are_ignored = False
        if self._is_shard:
            self._publisher.waits_for(str(self._master), held)

    def waited_for(self, found: str | Mapping[LogId, str]) -> HeldElsewhere:
        """The error of a run that ends before another one has ended."""
        if not isinstance(found, str):
            each = [f"{log_id} by {who}" for log_id, who in sorted(found.items())]
            found = "; ".join(each[:_MOST_NAMED]) + (f"; {len(each)} in all" if each[_MOST_NAMED:] else "")
        return HeldElsewhere(
            "another job has it, or some of its partitions",
            log=self._master,
            expected="none",
            found=found,
            hint="It can be taken when that one has ended.",
        )
