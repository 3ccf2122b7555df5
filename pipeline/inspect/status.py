"""``logtwin status``: the state of each replica and of its master, and its text for a person.

It asks three sources, none of which needs the others: the table for the position, the file of the running job for what
only a job knows (`pipeline/monitoring/run_state.py`), and the master for the rest. Masters are asked side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Group

from pipeline.config.configuration import Config
from pipeline.inspect.asked import MasterAnswer, Subject, logs_to_ask, topics_to_ask
from pipeline.job.master_watch import until_loss
from pipeline.monitoring.display import (
    age,
    duration,
    fact_blocks,
    held_back_by_transaction,
    in_unit,
    moment,
    number,
    size,
)
from pipeline.monitoring.facts import told_by
from pipeline.monitoring.progress import ENDED, PartitionProgress, Phase, Progress, total
from pipeline.monitoring.run_state import Run, RunState, runs_seen, told_together
from sinks.state.log_state import LogState
from sources.access.spread import side_by_side
from sources.errors import LogtwinError, MasterError, ReplicaError, unnamed
from sources.master import MasterView
from sources.offsets import Offset


def statuses(config: Config, runs: Sequence[Run] | None = None) -> list[Progress]:
    """The status of each log and topic. A master that cannot be asked is an entry in its status, not an error.

    `runs` is what the jobs said, if that was just read. Raises ReplicaError if a table cannot be read.
    """
    # The jobs' files are read before the tables: so what a job had acknowledged by then is at most the position.
    runs = runs_seen(config.warehouse) if runs is None else runs
    subjects = [*logs_to_ask(config), *topics_to_ask(config)]
    answers = side_by_side(lambda one: one.ask(), subjects)
    now = datetime.now(UTC)
    told = (told_together(runs, str(one.log_id), now) for one in subjects)
    return [status_of(*one, now) for one in zip(subjects, told, answers, strict=True)]


def troubles(one: Progress, now: datetime) -> list[LogtwinError]:
    """List what needs attention: no job runs, the job failed or waits, or the master does not answer.

    A job that has reached the end of its log, as one with --available-now does, is no trouble.
    """
    found: list[LogtwinError] = []
    if one.running and one.phase is Phase.WAITING:
        found.append(ReplicaError("the job waits", log=one.log_id, found=unnamed(one.last_error, one.log_id)))
    elif not one.running and one.phase is not Phase.DONE:
        found.append(
            ReplicaError(
                "no job replicates it",
                log=one.log_id,
                found="none that ran" if one.phase is None else _last(one, now),
                hint="logtwin replicate starts one.",
            )
        )
    if one.master_error is not None:
        found.append(
            MasterError("its master cannot be asked", log=one.log_id, found=unnamed(one.master_error, one.log_id))
        )
    return found


def _last(one: Progress, now: datetime) -> str:
    how = running(one, now).removeprefix("no, ")
    return how if one.last_error is None else f"{how}: {unnamed(one.last_error, one.log_id)}"


def status_of(subject: Subject, run: RunState | None, answer: MasterAnswer, now: datetime) -> Progress:
    """Combine what the job, the table and the master say."""
    answer = _of_same_log(subject, answer)
    live = run if run is not None and run.is_live(now) else None
    said = _acknowledged_before_the_end(run, subject.states) if live is None else dict(live.facts)
    parts = _parts(subject.states, said.pop("partitions", ()), answer)
    job = told_by(said, Progress(log_id=str(subject.log_id), role=subject.role, master=subject.master))
    position = _known(sum, (one.position for one in parts.values()))
    only = PartitionProgress() if subject.has_partitions else parts.get(0, PartitionProgress())
    found = replace(
        job,
        role=subject.role,
        master=subject.master,
        epoch=only.epoch,
        first=only.first,
        received=_known(max, (job.received, position)),
        position=position,
        acknowledged_by_master=total(one.acknowledged_by_master for one in parts.values()),
        master_minimum=total(one.master_minimum for one in parts.values()),
        master_maximum=total(one.master_maximum for one in parts.values()),
        writer=next((str(one.writer) for one in subject.states.values()), None),
        master_error=answer.error,
        partitions=parts if subject.has_partitions else {},
        **_of_run(run, is_live=live is not None),
        **_of_view(answer.view),
    )
    return replace(found, lag_s=_lag_s(found, live, now), **_until_loss(found, answer.view, subject.states.get(0)))


def _of_same_log(subject: Subject, answer: MasterAnswer) -> MasterAnswer:
    """Return `answer`, or an error if the topic was created again: its offsets say nothing about the replicated one."""
    if subject.identity is None or answer.identity in (None, subject.identity):
        return answer
    return MasterAnswer(
        error=f"the topic was deleted and created again: replicated is {subject.identity}, there is {answer.identity}"
    )


def _parts(
    states: Mapping[int, LogState], told: Iterable[Mapping[str, Any]], answer: MasterAnswer
) -> dict[int, PartitionProgress]:
    said = {one["partition"]: one for one in told}
    return {at: _part(at, states.get(at), said.get(at, {}), answer) for at in sorted({*answer.held, *states})}


def _part(at: int, state: LogState | None, said: Mapping[str, Any], answer: MasterAnswer) -> PartitionProgress:
    held = answer.held.get(at)
    return replace(
        told_by(said, PartitionProgress()),
        epoch=None if state is None else state.epoch,
        first=None if state is None else state.first,
        position=None if state is None else state.offset,
        acknowledged_by_master=answer.acknowledged.get(at),
        master_minimum=None if held is None else held.start,
        master_maximum=None if held is None else held.end,
        held_back_offsets=None if held is None else answer.held_back.get(at, 0),
    )


def _acknowledged_before_the_end(run: RunState | None, states: Mapping[int, LogState]) -> dict[str, Any]:
    """The facts of an ended job that still hold: how far it had acknowledged."""
    facts: Mapping[str, Any] = {} if run is None else run.facts
    positions = {at: one.offset for at, one in states.items()}
    parts = [
        {**one, "acknowledged": _at_most(positions.get(one["partition"]), one.get("acknowledged"))}
        for one in facts.get("partitions", ())
    ]
    whole = _at_most(_known(sum, positions.values()), facts.get("acknowledged"))
    return {"acknowledged": whole, "partitions": parts}


def _at_most(position: Offset | None, acknowledged: Offset | None) -> Offset | None:
    """Return `acknowledged`, unless a repair has taken the log back behind it since."""
    return None if position is None or acknowledged is None or acknowledged > position else acknowledged


def _known(combine: Callable[[Iterable[int]], int], offsets: Iterable[Offset | None]) -> Offset | None:
    """Combine the offsets that are known; None if none is."""
    known = [one for one in offsets if one is not None]
    return Offset(combine(known)) if known else None


def _of_run(run: RunState | None, *, is_live: bool) -> dict[str, Any]:
    """The facts about the last run, which outlive it."""
    if run is None:
        return {}
    return {
        "running": is_live,
        "phase": run.phase,
        **asdict(run.writer),
        "updated_at": run.updated_at.isoformat(timespec="seconds"),
        "last_error": run.facts.get("last_error"),
    }


def _of_view(view: MasterView | None) -> dict[str, Any]:
    """The facts about the master's role and election. If it cannot be asked, they are as the job saw them last."""
    if view is None:
        return {}
    epoch = None if view.epoch is None else view.epoch.number
    return {"master_role": view.role, "master_epoch": epoch, "confirmed": view.confirmed}


def _lag_s(found: Progress, live: RunState | None, now: datetime) -> float | None:
    """An upper bound of the lag: what the job said, plus the time since then, in which it may have committed."""
    if found.lag == 0:
        return 0.0
    said = found.lag_s
    return said if live is None or said is None or found.lag is None else said + max(0.0, live.age_s(now))


def _until_loss(found: Progress, view: MasterView | None, state: LogState | None) -> dict[str, Any]:
    """How much is left until loss. A running job knows how fast the master grows; otherwise only age and room count."""
    if view is None or found.until_loss_bytes is not None:
        return {}
    newest_us = None if state is None else state.newest_stored_us
    left = until_loss(view, view.bounds, found.position, newest_us, growth_bytes_per_s=None)
    return {} if left is None else {"until_loss_bytes": left.bytes, "until_loss_s": left.seconds}


def status_blocks(statuses: Sequence[Progress], now: datetime) -> Group:
    """The statuses as text for a person: one block for each log."""
    return fact_blocks((one.log_id, status_facts(one, now).items()) for one in statuses)


def _elected(one: Progress) -> dict[str, str]:
    """The line about an elected master; empty for any other."""
    if one.master_epoch is None:
        return {}
    return {"elected": f"epoch {one.master_epoch}, confirmed up to {number(one.confirmed)}"}


def status_facts(one: Progress, now: datetime) -> dict[str, str]:
    """The lines about a log or topic, by their names; an unknown value is a dash."""
    held = one.master_maximum
    lines = {
        "running": running(one, now),
        "process": "–" if one.pid is None else f"{one.pid} on {one.host}",
        "role": f"{one.role} of {one.master}" + (f", {one.master_role}" if one.master_role else ""),
        **_elected(one),
        "connected": _connected(one, now),
        "received": number(one.received),
        "committed": number(one.position) + _began(one),
        "acknowledged": number(one.acknowledged),
        "  as master counts": number(one.acknowledged_by_master),
        "master holds": "–" if held is None else f"{number(one.master_minimum)} to {number(held)}",
        "lag": in_unit(one.lag, one.unit) + ("" if one.lag_s is None else f", {duration(one.lag_s)}"),
        "until loss": _loss(one),
    }
    lines |= {f"  partition {at}": _partition(each) for at, each in sorted(one.partitions.items())}
    if one.unlisted:
        lines["unlisted"] = "no server lists it any more: it waits"
    errors = {"last error": one.last_error, "master says": one.master_error}
    return lines | {name: unnamed(text, one.log_id) for name, text in errors.items() if text is not None}


def _partition(one: PartitionProgress) -> str:
    held = "–" if one.master_maximum is None else f"{number(one.master_minimum)} to {number(one.master_maximum)}"
    behind = in_unit(one.lag, "offsets")
    waits = f"; {held_back_by_transaction(one.held_back_offsets)}" if one.held_back_offsets else ""
    return f"{number(one.position)} of {held}, acknowledged {number(one.acknowledged)}, lag {behind}{waits}"


def running(one: Progress, now: datetime) -> str:
    """Whether a job runs and since when, or how and when the last one ended."""
    if one.phase is None:
        return "no"
    if not one.running:
        how = one.phase if one.phase in ENDED else "last seen"
        return f"no, {how} {moment_ago(one.updated_at, now)}"
    phase = "" if one.phase is Phase.RUNNING else f", {one.phase}"
    return f"yes{phase}, since {moment_ago(one.since, now)}"


def _connected(one: Progress, now: datetime) -> str:
    reconnects = f", {one.reconnects:,} reconnects" if one.reconnects else ""
    return ("–" if one.connected_since is None else f"since {moment_ago(one.connected_since, now)}") + reconnects


def _began(one: Progress) -> str:
    if one.first is None:
        return ""
    return f", from {number(one.first)}" + (f", epoch {one.epoch}" if one.epoch else "")


def _loss(one: Progress) -> str:
    if one.until_loss_bytes is None:
        return "–"
    if one.until_loss_s is not None:
        when = f", {duration(one.until_loss_s)} at the earliest"
    else:
        when = ", when is not known yet" if one.position is None else ""
    return (size(one.until_loss_bytes) if one.until_loss_bytes else "in the file that goes next") + when


def moment_ago(iso: str | None, now: datetime) -> str:
    """ISO 8601 -> ``2026-11-21 14:02:11 UTC (3 min ago)``."""
    if iso is None:
        return "–"
    at = datetime.fromisoformat(iso)
    return f"{moment(at)} ({age(at, now)} ago)"
