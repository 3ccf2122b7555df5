"""``logtwin status``: the state of each replica and of its master.

It asks three sources, none of which needs the others: the table for the position, the file of the running job for what
only a job knows (`pipeline/monitoring/run_state.py`), and the master for the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline.config.configuration import Config
from pipeline.job.master_watch import until_loss
from pipeline.monitoring.display import duration, held_back_by_transaction, in_unit, moment, number, size
from pipeline.monitoring.lag import reached
from pipeline.monitoring.progress import ENDED, Phase
from pipeline.monitoring.run_state import RunFile, RunState
from sinks.delta.delta_log import Version, newest
from sinks.state.fence import state_at
from sinks.state.log_state import LogState
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.errors import LogError, LogtwinError, MasterError, ReplicaError
from sources.master import Master, MasterView
from sources.offsets import UNITS, LogId, Offset
from sources.options import ReadOptions
from sources.registry import open_log
from sources.visible import visible

log = logging.getLogger(__name__)

_OF_SESSION: Final = ("connected_since", "reconnects")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """The status of one partition of a topic; offsets mean the same as in `LogStatus`.

    `held_back_offsets` are behind its `master_maximum`, because they wait for an open transaction to end.
    """

    partition: int
    epoch: int | None
    first: int | None
    position: int | None
    acknowledged: int | None
    acknowledged_by_master: int | None
    master_minimum: int | None
    master_maximum: int | None
    lag_offsets: int | None
    held_back_offsets: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatus:
    """The status of one log or one topic; docs/json.md documents every field.

    Offsets and times are None if nobody could be asked or nothing is there yet. Times are ISO 8601, UTC. The lag is
    in what offsets count: bytes, ids, or Kafka's offsets, and None in the two other fields. A topic's offsets are sums
    over its `partitions`; a log has none.
    """

    id: str
    role: str
    master: str
    master_role: str | None
    master_epoch: int | None
    confirmed: int | None
    running: bool
    phase: str | None
    run: str | None
    host: str | None
    pid: int | None
    since: str | None
    updated_at: str | None
    connected_since: str | None
    reconnects: int | None
    epoch: int | None
    first: int | None
    received: int | None
    position: int | None
    acknowledged: int | None
    acknowledged_by_master: int | None
    master_minimum: int | None
    master_maximum: int | None
    lag_bytes: int | None
    lag_ids: int | None
    lag_offsets: int | None
    lag_s: float | None
    until_loss_bytes: int | None
    until_loss_s: float | None
    writer: str | None
    last_error: str | None
    master_error: str | None
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def lag(self) -> str:
        """The lag as text for a person, in what offsets count."""
        counts = (self.lag_bytes, self.lag_ids, self.lag_offsets)
        found = (in_unit(count, unit) for count, unit in zip(counts, UNITS, strict=True) if count is not None)
        return next(found, "–")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def log_statuses(config: Config) -> list[LogStatus]:
    """The status of each log. A master that cannot be asked is an entry in its log's status, not an error."""
    # The jobs' files are read before the table: so what a job had acknowledged by then is at most the position.
    runs = {options.id: last_run(config.warehouse, options.id) for options in config.logs}
    version = newest(LOG.path(absolute(config.warehouse)))
    return [_status(options, runs[options.id], version) for options in config.logs]


def troubles(one: LogStatus, now: datetime) -> list[LogtwinError]:
    """What needs attention: no job runs, the job failed or waits, or the master does not answer.

    A job that has reached the end of its log, as one with --available-now does, is no trouble.
    """
    found: list[LogtwinError] = []
    if one.running and one.phase == Phase.WAITING.value:
        found.append(ReplicaError("the job waits", log=one.id, found=one.last_error))
    elif not one.running and one.phase != Phase.DONE.value:
        found.append(
            ReplicaError(
                "no job replicates it",
                log=one.id,
                found="none that ran" if one.phase is None else _last(one, now),
                hint="logtwin replicate starts one.",
            )
        )
    if one.master_error is not None:
        found.append(MasterError("its master cannot be asked", log=one.id, found=one.master_error))
    return found


@dataclass(frozen=True, slots=True)
class MasterAnswer:
    """What a master answered, or why it did not."""

    view: MasterView | None = None
    acknowledged: Offset | None = None
    error: str | None = None


def _status(options: ReadOptions, run: RunState | None, version: Version | None) -> LogStatus:
    master = open_log(options)
    state = None if version is None else state_at(version, options.log_id)
    return status_of(master, run, state, _ask(master), datetime.now(UTC))


def status_of(
    master: Master, run: RunState | None, state: LogState | None, answer: MasterAnswer, now: datetime
) -> LogStatus:
    """Combine what the job, the table and the master say."""
    is_running = run is not None and run.is_live(now)
    facts: Mapping[str, Any] = run.facts if run is not None and is_running else {}
    position = None if state is None else state.offset
    bounds = None if answer.view is None else answer.view.bounds
    lag = None if bounds is None else max(0, bounds.end - reached(position, bounds))
    until_loss_bytes, until_loss_s = _until_loss(facts, answer.view, state)
    return LogStatus(
        id=str(master.id),
        role=master.role,
        master=master.place,
        **_election(facts, answer.view),
        epoch=None if state is None else state.epoch,
        first=None if state is None else state.first,
        received=max((at for at in (facts.get("received"), position) if at is not None), default=None),
        position=position,
        acknowledged=facts.get("acknowledged"),
        acknowledged_by_master=answer.acknowledged,
        master_minimum=None if bounds is None else bounds.start,
        master_maximum=None if bounds is None else bounds.end,
        **lags(lag, master.id),
        lag_s=lag_s(lag, run if is_running else None, now),
        until_loss_bytes=until_loss_bytes,
        until_loss_s=until_loss_s,
        writer=None if state is None else str(state.writer),
        master_error=answer.error,
        **told_by(run, now),
    )


def _election(facts: Mapping[str, Any], view: MasterView | None) -> dict[str, Any]:
    """The fields for the master's role and election: as it says itself, or else as the job last saw them."""
    if view is None:
        return {name: facts.get(name) for name in ("master_role", "master_epoch", "confirmed")}
    epoch = None if view.epoch is None else view.epoch.number
    return {"master_role": view.role, "master_epoch": epoch, "confirmed": view.confirmed}


def told_by(run: RunState | None, now: datetime) -> dict[str, Any]:
    """The fields of a `LogStatus` that only the last run knows."""
    if run is None:
        return dict.fromkeys(("phase", "run", "host", "pid", "since", "updated_at", *_OF_SESSION, "last_error")) | {
            "running": False
        }
    is_running = run.is_live(now)
    return {
        "running": is_running,
        "phase": run.phase.value,
        **asdict(run.writer),
        "updated_at": run.updated_at.isoformat(timespec="seconds"),
        **{name: run.facts.get(name) if is_running else None for name in _OF_SESSION},
        "last_error": run.facts.get("last_error"),
    }


def lags(lag: int | None, log_id: LogId) -> dict[str, Any]:
    """The fields of a `LogStatus` for the lag in offsets."""
    return {f"lag_{unit}": lag if unit == log_id.unit else None for unit in UNITS}


def last_run(warehouse: str, log_id: str) -> RunState | None:
    """The state that the last run of a log or topic published; None if there is none or it cannot be read."""
    try:
        return RunFile(warehouse, log_id).read()
    except OSError as error:
        log.warning("%s: cannot see whether a job runs: %s", log_id, error)
        return None


def _ask(master: Master) -> MasterAnswer:
    try:
        return MasterAnswer(master.look(), master.acknowledged_by_master().get(master.id))
    except (MasterError, LogError) as error:
        return MasterAnswer(error=str(error))


def lag_s(lag: int | None, running: RunState | None, now: datetime) -> float | None:
    """An upper bound of the lag: what the job said, plus the time since then, in which it may have committed."""
    if lag == 0:
        return 0.0
    if running is None:
        return None
    said: float | None = running.facts.get("lag_s")
    return said if said is None or lag is None else said + max(0.0, running.age_s(now))


def _until_loss(
    facts: Mapping[str, Any], view: MasterView | None, state: LogState | None
) -> tuple[int | None, float | None]:
    """What is left until loss. A running job knows how fast the master grows; otherwise only age and room count."""
    if facts.get("until_loss_bytes") is not None:
        return facts["until_loss_bytes"], facts.get("until_loss_s")
    if view is None:
        return None, None
    position, newest_us = (None, None) if state is None else (state.offset, state.newest_stored_us)
    left = until_loss(view, view.bounds, position, newest_us, growth_bytes_per_s=None)
    return (None, None) if left is None else (left.bytes, left.seconds)


def status_blocks(statuses: list[LogStatus], now: datetime) -> Group:
    """The statuses as text for a person: one block for each log."""
    return Group(*(part for one in statuses for part in (Text(one.id, style="bold"), _block(one, now), Text())))


def _elected(one: LogStatus) -> dict[str, str]:
    """The line about an elected master; empty for any other."""
    if one.master_epoch is None:
        return {}
    return {"elected": f"epoch {one.master_epoch}, confirmed up to {number(one.confirmed)}"}


def _block(one: LogStatus, now: datetime) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(one, now).items():
        table.add_row(f"  {name}", Text(visible(value)))
    return table


def _lines(one: LogStatus, now: datetime) -> dict[str, str]:
    held = one.master_maximum
    lines = {
        "running": _running(one, now),
        "process": "–" if one.pid is None else f"{one.pid} on {one.host}",
        "role": f"{one.role} of {one.master}" + (f", {one.master_role}" if one.master_role else ""),
        **_elected(one),
        "connected": _connected(one, now),
        "received": number(one.received),
        "committed": number(one.position) + _began(one),
        "acknowledged": number(one.acknowledged),
        "  as master counts": number(one.acknowledged_by_master),
        "master holds": "–" if held is None else f"{number(one.master_minimum)} to {number(held)}",
        "lag": one.lag + ("" if one.lag_s is None else f", {duration(one.lag_s)}"),
        "until loss": _loss(one),
    }
    lines |= {f"  partition {each.partition}": _partition(each) for each in one.partitions}
    errors = {"last error": one.last_error, "master says": one.master_error}
    return lines | {name: text for name, text in errors.items() if text is not None}


def _partition(one: PartitionStatus) -> str:
    held = "–" if one.master_maximum is None else f"{number(one.master_minimum)} to {number(one.master_maximum)}"
    behind = in_unit(one.lag_offsets, "offsets")
    waits = f"; {held_back_by_transaction(one.held_back_offsets)}" if one.held_back_offsets else ""
    return f"{number(one.position)} of {held}, acknowledged {number(one.acknowledged)}, lag {behind}{waits}"


def _last(one: LogStatus, now: datetime) -> str:
    how = _running(one, now).removeprefix("no, ")
    return how if one.last_error is None else f"{how}: {one.last_error}"


def _running(one: LogStatus, now: datetime) -> str:
    if one.phase is None:
        return "no"
    if not one.running:
        how = one.phase if Phase(one.phase) in ENDED else "last seen"
        return f"no, {how} {_moment(one.updated_at, now)}"
    phase = "" if one.phase == Phase.RUNNING.value else f", {one.phase}"
    return f"yes{phase}, since {_moment(one.since, now)}"


def _connected(one: LogStatus, now: datetime) -> str:
    reconnects = f", {one.reconnects:,} reconnects" if one.reconnects else ""
    return ("–" if one.connected_since is None else f"since {_moment(one.connected_since, now)}") + reconnects


def _began(one: LogStatus) -> str:
    if one.first is None:
        return ""
    return f", from {number(one.first)}" + (f", epoch {one.epoch}" if one.epoch else "")


def _loss(one: LogStatus) -> str:
    if one.until_loss_bytes is None:
        return "–"
    when = "" if one.until_loss_s is None else f", {duration(one.until_loss_s)} at the earliest"
    return f"{size(one.until_loss_bytes)}{when}"


def _moment(iso: str | None, now: datetime) -> str:
    """ISO 8601 -> ``2026-11-21 14:02:11 UTC (3 min ago)``."""
    if iso is None:
        return "–"
    at = datetime.fromisoformat(iso)
    return f"{moment(at)} ({duration(max(0.0, (now - at).total_seconds()))} ago)"
