"""How each replica stands, and its master: what ``logtwin status`` says.

Three are asked, and none of them needs the others: the table for the position, the file of the running job for what
only a job can know (`pipeline/run_state.py`), the master for the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline.config import Config
from pipeline.display import bytes_or_ids, duration, moment, number, size
from pipeline.lag import reached
from pipeline.master_watch import until_loss
from pipeline.progress import ENDED, Phase
from pipeline.run_state import RunFile, RunState
from pipeline.session import build_session, spark_log
from sinks.log_state import LogState
from sinks.position import LogTable
from sinks.tables import LOG
from sinks.warehouse import absolute
from sources.errors import LogError, MasterError
from sources.master import MasterLog, MasterView
from sources.offsets import Offset
from sources.options import ReadOptions
from sources.registry import open_log

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatus:
    """One log; README documents every field as the JSON has it.

    Offsets and times are None where nobody could be asked or nothing is there yet. Times are ISO 8601, UTC. The lag is
    in what offsets count: `lag_ids` is None of a log that counts bytes, `lag_bytes` of any other.
    """

    id: str
    role: str
    master: str
    master_role: str | None
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
    lag_s: float | None
    until_loss_bytes: int | None
    until_loss_s: float | None
    writer: str | None
    last_error: str | None
    master_error: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def log_statuses(config: Config) -> list[LogStatus]:
    """One status a log. A master that cannot be asked is an entry in its log's status, not an error."""
    spark = build_session(config.spark, log_file=spark_log())
    path = LOG.path(absolute(config.warehouse))
    has_table = DeltaTable.isDeltaTable(spark, path)
    return [_status(spark, config.warehouse, path if has_table else None, options) for options in config.logs]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a master said, or why it did not."""

    view: MasterView | None = None
    acknowledged: Offset | None = None
    error: str | None = None


def _status(spark: SparkSession, warehouse: str, table: str | None, options: ReadOptions) -> LogStatus:
    master = open_log(options)
    # The job's word before the table's: so what it has promised by then is at most the position.
    run = _last_run(RunFile(warehouse, options.id), options.id)
    state = None if table is None else LogTable(spark, table, options.log_id).read().state
    return status_of(master, run, state, _ask(master), datetime.now(UTC))


def status_of(
    master: MasterLog, run: RunState | None, state: LogState | None, answer: Answer, now: datetime
) -> LogStatus:
    """What the three say, as one."""
    is_running = run is not None and run.is_live(now)
    facts: Mapping[str, Any] = run.facts if run is not None and is_running else {}
    position = None if state is None else state.offset
    bounds = None if answer.view is None else answer.view.bounds
    lag = None if bounds is None else max(0, bounds.end - reached(position, bounds))
    counts_bytes = master.log_id.counts_bytes
    until_loss_bytes, until_loss_s = _until_loss(facts, answer.view, state)
    return LogStatus(
        id=str(master.log_id),
        role=master.role,
        master=master.place,
        master_role=facts.get("master_role") if answer.view is None else answer.view.role,
        running=is_running,
        phase=None if run is None else run.phase.value,
        run=None if run is None else run.writer.run,
        host=None if run is None else run.writer.host,
        pid=None if run is None else run.writer.pid,
        since=None if run is None else run.writer.since,
        updated_at=None if run is None else run.updated_at.isoformat(timespec="seconds"),
        connected_since=facts.get("connected_since"),
        reconnects=facts.get("reconnects"),
        epoch=None if state is None else state.epoch,
        first=None if state is None else state.first,
        received=max((at for at in (facts.get("received"), position) if at is not None), default=None),
        position=position,
        acknowledged=facts.get("acknowledged"),
        acknowledged_by_master=answer.acknowledged,
        master_minimum=None if bounds is None else bounds.start,
        master_maximum=None if bounds is None else bounds.end,
        lag_bytes=lag if counts_bytes else None,
        lag_ids=None if counts_bytes else lag,
        lag_s=_lag_s(lag, run if is_running else None, now),
        until_loss_bytes=until_loss_bytes,
        until_loss_s=until_loss_s,
        writer=None if state is None else str(state.writer),
        last_error=None if run is None else run.facts.get("last_error"),
        master_error=answer.error,
    )


def _last_run(file: RunFile, log_id: str) -> RunState | None:
    try:
        return file.read()
    except OSError as error:
        log.warning("%s: cannot see whether a job runs: %s", log_id, error)
        return None


def _ask(master: MasterLog) -> Answer:
    try:
        return Answer(master.look(), master.acknowledged_by_master())
    except (MasterError, LogError) as error:
        return Answer(error=str(error))


def _lag_s(lag: int | None, running: RunState | None, now: datetime) -> float | None:
    """What the job said and what has passed since: at the most, for it may have committed since."""
    if lag == 0:
        return 0.0
    if running is None:
        return None
    said: float | None = running.facts.get("lag_s")
    return said if said is None or lag is None else said + max(0.0, running.age_s(now))


def _until_loss(
    facts: Mapping[str, Any], view: MasterView | None, state: LogState | None
) -> tuple[int | None, float | None]:
    """A running job has seen how fast the master grows; without one age and room alone say it."""
    if facts.get("until_loss_bytes") is not None:
        return facts["until_loss_bytes"], facts.get("until_loss_s")
    if view is None:
        return None, None
    position, newest_us = (None, None) if state is None else (state.offset, state.newest_stored_us)
    left = until_loss(view, view.bounds, position, newest_us, growth_bytes_per_s=None)
    return (None, None) if left is None else (left.bytes, left.seconds)


def status_blocks(statuses: list[LogStatus], now: datetime) -> Group:
    """The statuses for a person: a block a log."""
    return Group(*(part for one in statuses for part in (Text(one.id, style="bold"), _block(one, now), Text())))


def _block(one: LogStatus, now: datetime) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(one, now).items():
        table.add_row(f"  {name}", Text(value))
    return table


def _lines(one: LogStatus, now: datetime) -> dict[str, str]:
    held, lag = one.master_maximum, bytes_or_ids(one.lag_bytes, one.lag_ids)
    lines = {
        "running": _running(one, now),
        "process": "–" if one.pid is None else f"{one.pid} on {one.host}",
        "role": f"{one.role} of {one.master}" + (f", {one.master_role}" if one.master_role else ""),
        "connected": _connected(one, now),
        "received": number(one.received),
        "committed": number(one.position) + _began(one),
        "acknowledged": number(one.acknowledged),
        "  as master counts": number(one.acknowledged_by_master),
        "master holds": "–" if held is None else f"{number(one.master_minimum)} to {number(held)}",
        "lag": lag + ("" if one.lag_s is None else f", {duration(one.lag_s)}"),
        "until loss": _loss(one),
    }
    errors = {"last error": one.last_error, "master says": one.master_error}
    return lines | {name: text for name, text in errors.items() if text is not None}


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
