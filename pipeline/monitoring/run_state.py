"""What the run of a job says of itself and of its logs, the file that it says it in, and how far it can be believed.

    <warehouse>/_runs/<run id>.json                      a job
    <warehouse>/_runs/_reading/<log id>/<run id>.json    a verb that reads from a master that counts connections

Each file is written by its own run alone, which renews it as long as it lives. A start reads the files of the others,
and refuses a log that another live run has; `logtwin status` shows them. They are only a hint: the table decides who
owns a log (`sinks/state/positions.py`). So a file that cannot be written or read hinders nothing, and that of a killed
run is out of date after 15 s. A start, or ``logtwin maintain``, removes the files of ended runs whose logs others tell.
Files in other folders are ignored: older versions wrote one for each log, ``_runs/<log id>.json``.

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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from pipeline.monitoring.progress import ENDED, Phase
from sinks.state.log_state import Writer
from sinks.storage.place import SPARE_BYTES, SmallFile
from sources.access.spread import side_by_side
from sources.errors import AlreadyRunning

PUBLISH_EVERY_S: Final = 5.0
FRESH_S: Final = 15.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The last words of a run. `logs`: by id of a log or topic its phase, since when the run has it, and its facts.

    `waits_for`: the logs of its share that other runs have, and which.
    """

    writer: Writer
    process_space: str
    updated_at: datetime
    shard: str | None = None
    has_ended: bool = False
    logs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    waits_for: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.writer) if self.shard is None else f"shard {self.shard}, {self.writer}"

    def as_json(self) -> str:
        return json.dumps(
            {
                **asdict(self.writer),
                "process_space": self.process_space,
                "updated_at": self.updated_at.isoformat(timespec="milliseconds"),
                "shard": self.shard,
                "has_ended": self.has_ended,
                "logs": self.logs,
                "waits_for": self.waits_for,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Run:
        """The inverse of `as_json`, without what a later version adds. Raises AttributeError, KeyError, TypeError or
        ValueError for any other text."""
        said = dict(json.loads(text))
        writer = Writer(**{name: said[name] for name in ("run", "host", "pid", "since")})
        updated_at = datetime.fromisoformat(said.pop("updated_at"))
        known = {one.name: said[one.name] for one in fields(cls) if one.name in said}
        found = cls(writer=writer, updated_at=updated_at, **known)
        for log_id in found.logs:
            found.of(log_id)
        return found

    def of(self, log_id: str) -> RunState | None:
        """The state of a log or topic in this run; None if it does not have it."""
        if log_id not in self.logs:
            return None
        facts = dict(self.logs[log_id])
        ended_at = facts.pop("ended_at", None)
        return RunState(
            run=self,
            phase=Phase(facts.pop("phase")),
            begun_at=datetime.fromisoformat(facts.pop("begun_at")),
            updated_at=self.updated_at if ended_at is None else datetime.fromisoformat(ended_at),
            facts=facts,
        )

    @property
    def is_of_this_host(self) -> bool:
        """Whether its process id is valid here: same host, same process ids."""
        return self.process_space == process_space()

    @property
    def is_dead(self) -> bool:
        """Whether it is certain that its process is gone."""
        return self.is_of_this_host and is_gone(self.writer.pid)

    def is_live(self, now: datetime) -> bool:
        """Whether it still works, as far as can be told."""
        is_fresh = abs((now - self.updated_at).total_seconds()) <= FRESH_S
        return is_fresh and not self.has_ended and not self.is_dead


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The last words of a run about a log or topic that it has had since `begun_at`.

    `updated_at` is when it said that: of a log that has ended, when it ended. `facts` are from `Progress.as_json`.
    """

    run: Run
    phase: Phase
    begun_at: datetime
    updated_at: datetime
    facts: Mapping[str, Any]

    @property
    def writer(self) -> Writer:
        return self.run.writer

    @property
    def partitions(self) -> set[int]:
        """The partitions that the run has of a topic; none of a log, and before its master was asked."""
        return {one["partition"] for one in self.facts.get("partitions", ())}

    def age_s(self, now: datetime) -> float:
        """Seconds since it was said; negative if the writer's clock is ahead of ours."""
        return (now - self.updated_at).total_seconds()

    @property
    def is_over(self) -> bool:
        """Whether it is certain that no connection and no task of that run is left."""
        return self.phase in (Phase.DONE, Phase.STOPPED) or self.run.is_dead

    def is_live(self, now: datetime) -> bool:
        """Whether that run still replicates it, as far as can be told."""
        return self.phase not in ENDED and self.run.is_live(now)


def tellers(runs: Iterable[Run], log_id: str, now: datetime) -> list[RunState]:
    """The runs whose words about a log or topic count: the live run that has it, or else the last that had it.

    Of several live runs it is the one that began with it last: it took it over. Shards of a job may share a topic: then
    each tells the partitions that none before it in this list tells.
    """
    found = [one for one in (run.of(log_id) for run in runs) if one is not None]
    told: list[RunState] = []
    seen: set[int] = set()
    for one in sorted(found, key=lambda one: (one.is_live(now), one.begun_at), reverse=True):
        if told and one.partitions <= seen:
            continue
        told.append(one)
        if one.run.shard is None:
            break  # it has all of the topic
        seen |= one.partitions
    return [one for one in told if one.partitions] or told[:1]  # a shard may have none of the topic


def superseded(runs: Sequence[Run], now: datetime) -> list[Run]:
    """The runs that are not live, and whose words count for none of their logs."""
    telling = {
        one.writer.run for log_id in {at for run in runs for at in run.logs} for one in tellers(runs, log_id, now)
    }
    return [one for one in runs if one.writer.run not in telling and not one.is_live(now)]


def told_together(runs: Iterable[Run], log_id: str, now: datetime) -> RunState | None:
    """Combine what `tellers` say of a log or topic.

    Of a topic that several shards have, offsets are sums, and who runs it and how is said of the shard that is worst
    off.
    """
    told = tellers(runs, log_id, now)
    if len(told) < 2:
        return told[0] if told else None
    worst = max(told, key=lambda one: (not one.is_live(now), _CONCERN.index(one.phase)))
    parts: dict[int, Any] = {}
    for one in told:
        parts = {each["partition"]: each for each in one.facts.get("partitions", ())} | parts
    return RunState(
        run=worst.run,
        phase=worst.phase,
        begun_at=worst.begun_at,
        updated_at=worst.updated_at,
        facts={
            **worst.facts,
            **{key: _known(sum, key, told) for key in ("received", "acknowledged", "reconnects")},
            **{key: _known(max, key, told) for key in ("connected_since", "lag_s")},
            "partitions": [each for _, each in sorted(parts.items())],
        },
    )


_CONCERN: Final = (Phase.DONE, Phase.STOPPED, Phase.RUNNING, Phase.STARTING, Phase.WAITING, Phase.FAILED)


def _known(combine: Any, key: str, told: Iterable[RunState]) -> Any:
    """Combine the values of a fact; None if one of them is unknown."""
    values = [one.facts.get(key) for one in told]
    return None if None in values else combine(values)


def forgotten_at(said: RunState, counted_for_s: float) -> datetime:
    """When a master has forgotten a run's connections; it counts each for `counted_for_s` after it last heard from it.

    A run that was killed on another host died at most FRESH_S after it last wrote its file. The time is by the wall
    clock that wrote the file.
    """
    if said.is_over:
        return said.updated_at
    return said.updated_at + timedelta(seconds=counted_for_s + (0.0 if said.phase in ENDED else FRESH_S))


def check_free(found: RunState, log_id: str, now: datetime, verb: str = "replicate") -> None:
    """Check that the run of `found` is dead. Raises AlreadyRunning; `verb` is what the operator wanted to start."""
    if not found.is_live(now):
        return
    left_s = math.ceil(FRESH_S - found.age_s(now))
    wait = "" if found.run.is_of_this_host else f", or, if that process is dead, start again in {left_s} s"
    raise AlreadyRunning(
        "another job replicates this log into the same warehouse",
        log=log_id,
        offset=found.facts.get("position"),
        expected="no other job",
        found=f"{found.run}, {found.phase.value} {max(0, round(found.age_s(now)))} s ago",
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


class RunFile:
    """The file of one run. Every method raises OSError if its storage cannot be reached, and nothing else."""

    def __init__(self, warehouse: str, run: str, folder: str = "") -> None:
        self._file = SmallFile(f"{_folder(warehouse, folder)}/{run}.json")

    @classmethod
    def below(cls, warehouse: str, folder: str = "") -> list[RunFile]:
        """All files of jobs, or of verbs, those in `folder` below; none if it does not exist."""
        names = SmallFile.names_in(_folder(warehouse, folder))
        return [cls(warehouse, name.removesuffix(".json"), folder) for name in names if name.endswith(".json")]

    def remove(self) -> None:
        """Remove the file; one that does not exist is no error."""
        self._file.remove()

    def read(self) -> Run | None:
        """Read what the run said last; None if there is no file, or this version cannot parse it."""
        content = self._file.read()
        try:
            return None if content is None else Run.from_json(content.decode())
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def write(self, run: Run) -> None:
        """Write atomically: a reader sees the old content or the new. On a full disk, over the old one."""
        self._file.write(run.as_json().encode(), spare_bytes=SPARE_BYTES)


def _folder(warehouse: str, folder: str) -> str:
    return f"{warehouse.rstrip('/')}/_runs/{folder}".rstrip("/")


def runs_of(warehouse: str) -> list[Run]:
    """Read what all jobs of a warehouse said last, also those that have ended. Raises OSError."""
    return [one for one in side_by_side(RunFile.read, RunFile.below(warehouse)) if one is not None]


def runs_seen(warehouse: str) -> list[Run]:
    """Read the runs, to show them: none, with a warning, if they cannot be read."""
    try:
        return runs_of(warehouse)
    except OSError as error:
        log.warning("cannot see which jobs run: %s", error)
        return []


def tidy(warehouse: str) -> None:
    """Remove the files of runs that are not live and whose logs others tell. Raises OSError.

    A live run that was taken for dead writes its file again.
    """
    for one in superseded(runs_of(warehouse), datetime.now(UTC)):
        RunFile(warehouse, one.writer.run).remove()
