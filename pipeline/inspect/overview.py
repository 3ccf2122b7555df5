"""All that ``logtwin status`` and the page of ``logtwin report --serve`` say: logs, typed tables, jobs, upkeep.

Jobs are shown with their shard and what each waits for. A warehouse may also hold logs and topics that its
configuration does not name: left behind, or of another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.config.configuration import Config
from pipeline.config.found import found_now
from pipeline.inspect.status import statuses
from pipeline.inspect.typed_status import TypedStatus, status_lines, typed_statuses
from pipeline.monitoring.progress import Progress
from pipeline.monitoring.run_state import Run, runs_seen
from pipeline.monitoring.upkeep import Upkeep, seen, sentence
from sinks.books.topic_states import topics_held
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in, state_in
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.shards import Shard

_MOST_NAMED = 3
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A warehouse at the time `at`. `jobs` are those that are alive, `unconfigured` logs that nobody asked for."""

    at: datetime
    logs: Sequence[Progress]
    tables: Sequence[TypedStatus]
    jobs: Sequence[Run]
    upkeep: Upkeep | None
    upkeep_every_s: float
    unconfigured: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """Lines for a person, beside those of the logs."""
        yield from job_lines(self.jobs)
        if self.tables:
            yield from status_lines(self.tables)
        if self.unconfigured:
            yield unconfigured_words(self.unconfigured)
        yield f"upkeep: {sentence(self.upkeep, self.upkeep_every_s, self.at)}"


def overview(given: Config) -> Overview:
    """Look at the tables, the files of the jobs, and the masters; `given` still has its patterns.

    Raises ReplicaError, StorageUnreachable.
    """
    config = found_now(given)
    runs = runs_seen(config.warehouse)
    logs = statuses(config, runs)
    tables = typed_statuses(config)
    now = datetime.now(UTC)
    return Overview(
        at=now,
        logs=logs,
        tables=tables,
        jobs=live_jobs(runs, now),
        upkeep=seen(given),
        upkeep_every_s=config.maintain.every_s,
        unconfigured=unconfigured(config),
    )


def live_jobs(runs: Sequence[Run], now: datetime) -> list[Run]:
    """Return the `runs` that are alive, by their shards, and by when they began."""
    return sorted((one for one in runs if one.is_live(now)), key=lambda one: (_shard(one), one.writer.since))


def _shard(one: Run) -> tuple[int, int]:
    shard = Shard(1, 1) if one.shard is None else Shard.parse(one.shard)
    return shard.of, shard.number


def job_as_json(one: Run) -> dict[str, Any]:
    """One job; docs/json.md documents every key."""
    return {
        "run": one.writer.run,
        "shard": one.shard,
        "host": one.writer.host,
        "pid": one.writer.pid,
        "since": one.writer.since,
        "updated_at": one.updated_at.isoformat(timespec="seconds"),
        "logs": len(one.logs),
        "waits_for": dict(one.waits_for),
    }


def job_lines(jobs: Sequence[Run]) -> Iterator[str]:
    """Live jobs as lines for a person; none if none of them is of a shard."""
    if all(one.shard is None for one in jobs):
        return
    yield "jobs"
    for one in jobs:
        yield f"  {one}: {len(one.logs)} logs and topics{_waits(one)}"
    shards = [_shard(one) for one in jobs]
    if len({of for of, _ in shards}) == 1:
        of, numbers = shards[0][0], {number for _, number in shards}
        for number in range(1, of + 1):
            if number not in numbers:
                yield f"  shard {number}/{of}: no job is alive"


def _waits(one: Run) -> str:
    if not one.waits_for:
        return ""
    each = [f"{log_id} (held by {who})" for log_id, who in sorted(one.waits_for.items())]
    rest = f" and {len(each) - _MOST_NAMED} more" if each[_MOST_NAMED:] else ""
    return f"; waits for {', '.join(each[:_MOST_NAMED])}{rest}"


def unconfigured(config: Config) -> tuple[str, ...]:
    """Return the logs with a position that `config` does not name; it has no patterns. Raises ReplicaError."""
    warehouse = absolute(config.warehouse)
    version = newest(LOG.path(warehouse))
    domains = {} if version is None else version.domains()
    named = {one.log_id for one in config.logs} | {one.log_id for one in config.named_topics}
    states = {log_id: [state_in(domains.get, log_id)] for log_id in logs_in(domains) if log_id not in named}
    topics = {topic: [*found.values()] for topic, found in topics_held(warehouse).items() if topic not in named}
    held = (states | topics).items()
    return tuple(
        sorted(str(at) for at, found in held if any(one is not None and one.offset is not None for one in found))
    )


def unconfigured_words(found: Sequence[str]) -> str:
    """A sentence without its full stop, of at least one."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"the warehouse also holds {', '.join(found[:_NAMED])}{more}, not configured here"
