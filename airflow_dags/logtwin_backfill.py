"""Fills the holes of a replica: records before its beginning, lost records, and records that retention has deleted.

* `holes` asks the replica which ranges of the log it lacks, between *from* and *to* if they are given;
* `fill` reads each of them, in a Spark job of its own, from the master or from the folder *path*, and commits it;
* `coverage` says what the replica holds afterwards, as its result.

Run it as often as you like, also several runs at once, and while the log is being replicated: an existing record is not
written again, and if two runs fill one hole, the second finds it filled. If nothing is missing, nothing is done.
Records that the source does not have any more stay holes; `coverage` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param
from logtwin_submit import COMMON, WHERE, AnsweringVerb, Verb, log_param

FILLS_PER_RUN = 100
"""More holes than that share tasks: Airflow maps a task a thousand times at most, and each one starts Spark."""

FILLS_AT_ONCE = 4

_OFFSET_OR_TIME = r"^(\d{1,19}|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?)$"


def fills(answer: dict[str, Any]) -> list[dict[str, int]]:
    """The ranges to fill, each with one submission, from the answer of ``backfill --dry-run``."""
    holes = answer["holes"]
    together = max(1, -(-len(holes) // FILLS_PER_RUN))
    return [_around(holes[at : at + together]) for at in range(0, len(holes), together)]


def _around(holes: Sequence[dict[str, int]]) -> dict[str, int]:
    """The range from the first hole to the last. Records between holes are in the replica, and are left alone."""
    return {"from": holes[0]["start"], "to": holes[-1]["end"]}


def _bound(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], pattern=_OFFSET_OR_TIME, title=title, description=description)


with DAG(
    "logtwin_backfill",
    description="fills the holes of a replica",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=4,
    params={
        "log": log_param(type="string", description="the log's id in the configuration"),
        "from": _bound("From", "an offset, or a time like 2026-01-31T12:00:00Z; empty: the log's beginning"),
        "to": _bound("To", "an offset, or a time, not included; empty: up to where the replica is"),
        "path": Param(
            None,
            type=["null", "string"],
            minLength=1,
            title="Archive",
            description="a folder of segment files to read instead of the master, where the Spark tasks run",
        ),
        **WHERE,
    },
    **COMMON,
):
    holes = AnsweringVerb(
        task_id="holes",
        verb="backfill",
        options=("log", "from", "to", "path"),
        given={"dry_run": True},
        read=fills,
    )
    fill = Verb.partial(
        task_id="fill",
        verb="backfill",
        options=("log", "path"),
        max_active_tis_per_dagrun=FILLS_AT_ONCE,
        map_index_template="{{ task.given['from'] }} – {{ task.given['to'] }}",
    ).expand(given=holes.output)
    coverage = AnsweringVerb(task_id="coverage", verb="coverage", options=("log",), trigger_rule="none_failed")
    fill >> coverage
