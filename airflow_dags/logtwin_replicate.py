"""Brings a replica to where its masters are now, every ten minutes, if you do not want a Spark job to run all day.

Each run reads what came since the last one, commits and acknowledges it, brings the typed tables on, and ends. The next
run goes on from the position in the table, so a run that was killed is not repeated but continued. Two runs never
overlap: if one takes longer, the runs that were due meanwhile are skipped.

Turn it on only if no `logtwin replicate` runs for the same warehouse: a log has one job at a time, and a second one is
refused. A producer that waits for the lakehouse (SYNC_MASTER) would wait until the next run: run a job all the time
then. And a master must hold what came between two runs: its retention has to be longer than the time between them.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Param
from logtwin_submit import COMMON, WHERE, Verb

with DAG(
    "logtwin_replicate",
    description="replicates what the masters hold now, then ends",
    doc_md=__doc__,
    schedule="*/10 * * * *",
    max_active_runs=1,
    params={
        "take_over": Param(
            False,
            type="boolean",
            title="Take over",
            description="start even if another job replicates a log; that one loses it",
        ),
        **WHERE,
    },
    **COMMON,
):
    Verb(task_id="replicate", verb="replicate", options=("take_over",), given={"available_now": True})
