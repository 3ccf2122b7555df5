"""Keeps the tables of a replica small and quick, every hour, while the log is being replicated.

It merges small files of one-second commits into large ones, removes files that no version needs and files of crashed
batches, and writes the Delta log's checkpoint. If *days* or *gigabytes* to keep are given, older records are deleted,
and the ledger says so. With *Only say* nothing is changed, and the task's log shows what would be done.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param
from logtwin_submit import COMMON, WHERE, Verb, log_param


def _limit(title: str, description: str, **bound: Any) -> Param:
    return Param(None, type=["null", "number"], title=title, description=description, **bound)


with DAG(
    "logtwin_maintain",
    description="compacts, cleans and trims the tables of a replica",
    doc_md=__doc__,
    schedule="15 * * * *",
    max_active_runs=1,
    params={
        "log": log_param(default=None, type=["null", "string"], description="one log's id; empty: all"),
        "keep_days": _limit(
            "Days to keep", "records stored longer ago are deleted; empty: as configured", exclusiveMinimum=0
        ),
        "keep_gb": _limit(
            "Gigabytes to keep", "the oldest records beyond this are deleted; empty: as configured", exclusiveMinimum=0
        ),
        "vacuum_hours": _limit(
            "Hours to keep old files", "readers of old versions need them; empty: as configured", minimum=1
        ),
        "dry_run": Param(False, type="boolean", title="Only say", description="change nothing, say what would be done"),
        **WHERE,
    },
    **COMMON,
):
    Verb(task_id="maintain", verb="maintain", options=("log", "keep_days", "keep_gb", "vacuum_hours", "dry_run"))
