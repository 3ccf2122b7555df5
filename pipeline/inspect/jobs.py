"""The jobs that are alive in a warehouse, as ``logtwin status`` shows them: of which shard, and what each waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pipeline.monitoring.run_state import Run
from sources.shards import Shard

_MOST_NAMED = 3


def live(runs: Sequence[Run], now: datetime) -> list[Run]:
    """Those of `runs` that are alive, by their shards, and by when they began."""
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
