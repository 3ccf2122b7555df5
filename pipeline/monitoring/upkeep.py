"""What is known of the newest upkeep of a warehouse: a small file, written by whoever does it, a job or a verb.

    <warehouse>/_runs/_upkeep/<scope>.json

A scope is what a configuration lists, so the shards of a job have one file, and jobs of different configurations have
one each. The file says when the next upkeep is due, whoever did the last one, and that one is under way: then a job
waits. It is only a hint, because two that begin at the same moment do not see each other. Both finish then: every step
is one commit, which Kernel refuses if the other one was first, or removes files that may be gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any, Final

from pipeline.config.configuration import Config
from pipeline.monitoring.display import age, duration, number
from pipeline.monitoring.facts import Fact, Metric, Readers, as_json, told_by
from pipeline.monitoring.run_state import is_gone, process_space
from sinks.state.fence import this_writer
from sinks.storage.place import SPARE_BYTES, SmallFile

SILENT_S: Final = 600.0
"""One that has told nothing for so long is taken for dead."""
_TOLD_EVERY_S: Final = 60.0


def _age_s(one: Upkeep) -> float | None:
    since = one.whole_at or one.watched_since
    return None if since is None else max(0.0, (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())


def _failing(one: Upkeep) -> float:
    return float(one.failures > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The facts of the newest upkeep, each declared here and nowhere else. Times are ISO 8601, UTC."""

    run: Annotated[str | None, Fact("who did it: the run of a job, or a process of `maintain`")] = None
    host: Annotated[str | None, Fact("where")] = None
    pid: Annotated[int | None, Fact("its process there")] = None
    began_at: Annotated[str | None, Fact("when it began")] = None
    ended_at: Annotated[str | None, Fact("when it ended; null while it is under way, and if it was killed")] = None
    running: Annotated[bool, Fact("whether it is under way", Readers.STATUS)] = False
    seconds: Annotated[
        float,
        Fact("how long it took, or has taken so far"),
        Metric("upkeep_seconds", "how long the newest upkeep took"),
    ] = 0.0
    steps: Annotated[int, Fact("steps that it has done")] = 0
    merged_files: Annotated[
        int, Fact("small files that it merged"), Metric("upkeep_merged_files", "files that the newest upkeep merged")
    ] = 0
    merged_into: Annotated[int, Fact("files that they became")] = 0
    deleted_files: Annotated[
        int,
        Fact("files that it deleted: those that no commit names, and old entries of the Delta logs"),
        Metric("upkeep_deleted_files", "files that the newest upkeep deleted"),
    ] = 0
    deleted_records: Annotated[int, Fact("records that retention deleted")] = 0
    failures: Annotated[
        int,
        Fact("steps that failed; the others were done"),
        Metric("upkeep_failing", "1 if a step of the newest upkeep failed, else 0", value=_failing),
    ] = 0
    error: Annotated[str | None, Fact("why the first of them failed, or what ended it early")] = None
    whole_at: Annotated[
        str | None,
        Fact("when an upkeep last ended without a failure"),
        Metric(
            "upkeep_age_seconds", "how long ago an upkeep last ended without a failure, or the job began", value=_age_s
        ),
    ] = None
    watched_since: str | None = None  # when the job began

    def as_json(self, readers: Readers = Readers.STATUS) -> dict[str, Any]:
        return as_json(self, readers, "bytes")

    def after(self, done: Done, seconds: float) -> Upkeep:
        """Return the upkeep with one more step."""
        sums = {one.name: getattr(self, one.name) + getattr(done, one.name) for one in fields(done)}
        return replace(self, seconds=round(seconds, 1), steps=self.steps + 1, **sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The work of one step, by the names that `Upkeep` has for the sums."""

    merged_files: int = 0
    merged_into: int = 0
    deleted_files: int = 0
    deleted_records: int = 0


class UpkeepFile:
    """The file of the upkeep that a configuration asks for. Methods raise OSError if its storage cannot be reached."""

    def __init__(self, config: Config) -> None:
        """`config` as it was written, with its patterns."""
        listed = sorted(name for entry in (*config.log_entries, *config.topics) for name in entry.names)
        scope = blake2b("\n".join(listed).encode(), digest_size=8).hexdigest()
        self._file = SmallFile(f"{config.warehouse.rstrip('/')}/_runs/_upkeep/{scope}.json")

    def read(self, now: datetime) -> Upkeep | None:
        """Read the newest upkeep; None if there was none, or this version cannot parse the file."""
        content = self._file.read()
        if content is None:
            return None
        try:
            said = dict(json.loads(content))
            found = told_by(said, Upkeep())
            updated_at = datetime.fromisoformat(said["updated_at"])
            datetime.fromisoformat(str(found.began_at))
        except (KeyError, TypeError, ValueError):
            return None
        is_dead = said.get("process_space") == process_space() and found.pid is not None and is_gone(found.pid)
        is_silent = abs((now - updated_at).total_seconds()) > SILENT_S
        return replace(found, running=found.ended_at is None and not is_dead and not is_silent)

    def write(self, one: Upkeep) -> None:
        """Replace the file atomically. On a full disk, over the old one."""
        said = one.as_json(Readers.RUN_FILE) | {"process_space": process_space(), "updated_at": _iso(datetime.now(UTC))}
        self._file.write(json.dumps(said).encode(), spare_bytes=SPARE_BYTES)


class Telling:
    """Tells of an upkeep that this process does, step by step; `tell` gets each state of it.

    A file that cannot be written hinders nothing.
    """

    def __init__(self, file: UpkeepFile, tell: Callable[[Upkeep], None] = lambda _: None) -> None:
        self._file, self._tell = file, tell
        writer, self._began = this_writer(), datetime.now(UTC)
        before = _read(file, self._began)
        self._now = Upkeep(
            run=writer.run,
            host=writer.host,
            pid=writer.pid,
            began_at=_iso(self._began),
            whole_at=None if before is None else before.whole_at,
        )
        self._say()

    def did(self, done: Done) -> None:
        self._now = self._now.after(done, self._seconds)
        self._say()

    def goes_on(self) -> None:
        """Note that a step is still under way: it may take long, because a log may have many files to merge."""
        if self._seconds - self._said_at_s > _TOLD_EVERY_S:
            self._now = replace(self._now, seconds=round(self._seconds, 1))
            self._say()

    def failed(self, error: Exception) -> None:
        self._now = replace(self._now, failures=self._now.failures + 1, error=self._now.error or str(error))
        self._say()

    def ended(self, why: str | None = None) -> None:
        """Note the end; `why` is the reason if not all of it was done."""
        at = _iso(datetime.now(UTC))
        is_whole = why is None and not self._now.failures
        self._now = replace(
            self._now,
            seconds=round(self._seconds, 1),
            ended_at=at,
            whole_at=at if is_whole else self._now.whole_at,
            error=self._now.error or why,
        )
        self._say()

    @property
    def _seconds(self) -> float:
        return max(0.0, (datetime.now(UTC) - self._began).total_seconds())

    def _say(self) -> None:
        self._said_at_s = self._seconds
        self._tell(self._now)
        try:
            self._file.write(self._now)
        except OSError:
            return


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def seen(config: Config) -> Upkeep | None:
    """Read the newest upkeep, to show it: None, too, if the file cannot be read."""
    return _read(UpkeepFile(config), datetime.now(UTC))


def _read(file: UpkeepFile, now: datetime) -> Upkeep | None:
    try:
        return file.read(now)
    except OSError:
        return None


def sentence(one: Upkeep | None, every_s: float, now: datetime) -> str:
    """The newest upkeep in words, for a person: when, for how long, what it did, and why it failed."""
    by_the_job = "" if every_s else "; a job does none ([maintain] every_s = 0)"
    if one is None or one.began_at is None:
        return f"none so far{by_the_job}"
    ago = age(datetime.fromisoformat(one.ended_at or one.began_at), now)
    how = "ended" if one.ended_at else "under way, begun" if one.running else "killed, begun"
    did = f"{number(one.merged_files)} files merged into {number(one.merged_into)}, {number(one.deleted_files)} deleted"
    failed = f"{number(one.failures)} {'step' if one.failures == 1 else 'steps'} failed: " if one.failures else ""
    why = "" if one.error is None else f"; {failed}{one.error}"
    return f"{how} {ago} ago, {duration(one.seconds)} of work: {did}{why}{by_the_job}"
