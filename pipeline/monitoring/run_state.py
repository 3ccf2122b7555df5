"""Publishes which run replicates a log now: a small file that the run renews as long as it lives.

    <warehouse>/_runs/<log id>.json        the run, its process and host, when it was written, its phase, its progress

A start reads it, and refuses to start if another run is alive; `logtwin status` shows it. It is only a hint: the table
decides who owns a log (`sinks/state/positions.py`). So a file that cannot be written or read hinders nothing, and the
file of a killed run is out of date after 15 s.

On the same host, with the same process ids, a run is known to be dead if its process is gone; elsewhere only time
tells. That compares the wall clocks of two hosts: if they are d seconds apart, a live run looks d seconds older or
younger. Up to 10 s apart (FRESH_S less PUBLISH_EVERY_S), this changes only how long others wait for a dead run. Further
apart, or after a clock jump, a live run may look dead. Then the table decides: the newest start wins.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.monitoring.facts import Readers
from pipeline.monitoring.progress import ENDED, Phase, Progress
from sinks.state.log_state import Writer
from sinks.storage.place import SmallFile
from sources.errors import AlreadyRunning, TakenOver, of_log

PUBLISH_EVERY_S = 5.0
FRESH_S = 15.0
_LAST_WORD_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state that a run published last. `facts`: what a job says of its log (`Progress.as_json`)."""

    writer: Writer
    process_space: str
    updated_at: datetime
    phase: Phase
    facts: Mapping[str, Any]

    def as_json(self) -> str:
        return json.dumps(
            {
                **asdict(self.writer),
                "process_space": self.process_space,
                "updated_at": self.updated_at.isoformat(timespec="milliseconds"),
                "phase": self.phase.value,
                **self.facts,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RunState:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for any other text."""
        facts = dict(json.loads(text))
        return cls(
            writer=Writer(**{name: facts.pop(name) for name in ("run", "host", "pid", "since")}),
            process_space=facts.pop("process_space"),
            updated_at=datetime.fromisoformat(facts.pop("updated_at")),
            phase=Phase(facts.pop("phase")),
            facts=facts,
        )

    def age_s(self, now: datetime) -> float:
        """Seconds since it was written; negative if the writer's clock is ahead of ours."""
        return (now - self.updated_at).total_seconds()

    @property
    def is_over(self) -> bool:
        """Whether it is certain that no connection and no task of that run is left."""
        return self.phase in (Phase.DONE, Phase.STOPPED) or (self.is_of_this_host and is_gone(self.writer.pid))

    @property
    def is_of_this_host(self) -> bool:
        """Whether its process id is valid here: same host, same process ids."""
        return self.process_space == process_space()

    def is_live(self, now: datetime) -> bool:
        """Whether that run still works, as far as can be told."""
        if self.phase in ENDED or abs(self.age_s(now)) > FRESH_S:
            return False
        return not (self.is_of_this_host and is_gone(self.writer.pid))


def forgotten_at(said: RunState, counted_for_s: float) -> datetime:
    """When a master has forgotten a run's connections; it counts each for `counted_for_s` after it last heard from it.

    A run that was killed on another host died at most FRESH_S after it last wrote its file. The time is by the wall
    clock that wrote the file.
    """
    if said.is_over:
        return said.updated_at
    return said.updated_at + timedelta(seconds=counted_for_s + (0.0 if said.phase in ENDED else FRESH_S))


class RunFile:
    """The file of one log. Every method raises OSError if its storage cannot be reached, and nothing else."""

    def __init__(self, warehouse: str, log_id: str) -> None:
        self._file = SmallFile(f"{_folder(warehouse)}/{log_id}.json")

    @classmethod
    def below(cls, warehouse: str, folder: str) -> list[RunFile]:
        """The files in `folder` below the folder of all such files; none if it does not exist."""
        names = SmallFile.names_in(f"{_folder(warehouse)}/{folder}")
        return [cls(warehouse, f"{folder}/{name.removesuffix('.json')}") for name in names if name.endswith(".json")]

    def remove(self) -> None:
        """Remove the file; one that does not exist is no error."""
        self._file.remove()

    def read(self) -> RunState | None:
        """What the last run published; None if there is no file, or this version cannot parse it."""
        content = self._file.read()
        try:
            return None if content is None else RunState.from_json(content.decode())
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, state: RunState) -> None:
        """Write atomically: a reader sees the old content or the new."""
        self._file.write(state.as_json().encode())


def _folder(warehouse: str) -> str:
    return f"{warehouse.rstrip('/')}/_runs"


class Publisher:
    """Keeps the file of one log up to date for one run, in a thread of its own, so that a waiting job is seen alive.

    It writes the file every PUBLISH_EVERY_S, and at once after `changed`. A commit is no reason to write it: many logs
    would write many files a second, possibly to an object store.

    Call `enter` once before the log is claimed. It publishes from then on until the phase of `progress` has ended, and
    calls `progress` in its thread.
    """

    def __init__(self, file: RunFile, log_id: str, writer: Writer, progress: Callable[[], Progress]) -> None:
        self._file = file
        self._log_id = log_id
        self._writer = writer
        self._progress = progress
        self._known = {writer.run}  # the runs whose files do not stop this one
        self.before: RunState | None = None  # the previous run, unless the log was taken over from it
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_failed = False

    def enter(self, *, take_over: bool) -> None:
        """Publish that this run exists. Raises AlreadyRunning if another one is alive, unless `take_over`."""
        found = self._read()
        if found is not None and found.writer.run not in self._known:
            if not take_over:
                check_free(found, self._log_id, datetime.now(UTC))
                self.before = found
            self._known.add(found.writer.run)
        if self._thread is None:
            self._publish()
            self._thread = threading.Thread(target=self._run, name=f"run state {self._log_id}", daemon=True)
            self._thread.start()

    def changed(self) -> None:
        """Publish soon, because the phase changed. From any thread."""
        self._changed.set()

    def join(self) -> None:
        """Wait a moment until the last state is written. Call it after the phase has ended."""
        self._changed.set()
        if self._thread is not None:
            self._thread.join(_LAST_WORD_S)

    def _run(self) -> None:
        while True:
            self._changed.wait(PUBLISH_EVERY_S)
            self._changed.clear()  # before publishing, so that a later change is not missed
            try:
                if self._publish() in ENDED:
                    return
            except Exception as failure:  # noqa: BLE001 - without this thread the job would pass for dead
                self._say_once(failure)

    def _publish(self) -> Phase:
        progress = self._progress()
        phase = progress.phase or Phase.STARTING
        now = datetime.now(UTC)
        found = self._read()
        if not self._is_anothers(found, now) and not self._has_lost(progress, found):
            self._write(
                RunState(
                    writer=self._writer,
                    process_space=process_space(),
                    updated_at=now,
                    phase=phase,
                    facts=progress.as_json(Readers.RUN_FILE),
                )
            )
        return phase

    def _is_anothers(self, found: RunState | None, now: datetime) -> bool:
        """Whether a newer run uses the file: it owns the log, or will in a moment."""
        return found is not None and found.writer.run not in self._known and found.is_live(now)

    def _has_lost(self, progress: Progress, found: RunState | None) -> bool:
        """Whether this run lost the log and its file is gone. If the file is still its own, it must write the end."""
        says_mine = found is not None and found.writer.run == self._writer.run
        return isinstance(progress.error, TakenOver) and not says_mine

    def _read(self) -> RunState | None:
        try:
            return self._file.read()
        except OSError as error:
            self._say_once(error)
            return None

    def _write(self, state: RunState) -> None:
        try:
            self._file.write(state)
        except OSError as error:
            self._say_once(error)

    def _say_once(self, failure: Exception) -> None:
        if not self._has_failed:
            said = failure if isinstance(failure, OSError) else of_log(failure, self._log_id)
            _log.warning("%s: others cannot see that this job runs; nothing else is affected: %s", self._log_id, said)
        self._has_failed = True


def check_free(found: RunState, log_id: str, now: datetime, verb: str = "replicate") -> None:
    """Check that the run of `found` is dead. Raises AlreadyRunning; `verb` is what the operator wanted to start."""
    if not found.is_live(now):
        return
    left_s = math.ceil(FRESH_S - found.age_s(now))
    wait = "" if found.is_of_this_host else f", or, if that process is dead, start again in {left_s} s"
    raise AlreadyRunning(
        "another job replicates this log into the same warehouse",
        log=log_id,
        offset=found.facts.get("position"),
        expected="no other job",
        found=f"{found.writer}, {found.phase.value} {max(0, round(found.age_s(now)))} s ago",
        hint=f"Stop that one{wait}. logtwin {verb} --take-over takes the log from it at once.",
    )


@cache
def process_space() -> str:
    """Names the space in which process ids are valid: this boot of this host and, in a container, the container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return socket.gethostname()


def is_gone(pid: int) -> bool:
    """Whether no process here has this id. A zombie counts as gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it exists, and belongs to another user
    with suppress(OSError):  # not Linux, or hidden
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return False
