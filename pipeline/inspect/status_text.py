"""The status of logs and topics as text for a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group

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
from pipeline.monitoring.progress import ENDED, PartitionProgress, Phase, Progress
from sources.errors import unnamed


def status_blocks(statuses: Sequence[Progress], now: datetime) -> Group:
    """The statuses as text for a person: one block for each log."""
    return fact_blocks((one.log_id, status_facts(one, now).items()) for one in statuses)


def _elected(one: Progress) -> dict[str, str]:
    """The line about an elected master; empty for any other."""
    if one.master_epoch is None:
        return {}
    return {"elected": f"epoch {one.master_epoch}, confirmed up to {number(one.confirmed)}"}


def status_facts(one: Progress, now: datetime) -> dict[str, str]:
    """What is said of a log or topic, by the names of the lines; an unknown value is a dash."""
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
