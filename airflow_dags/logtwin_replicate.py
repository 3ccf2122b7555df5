"""Brings a replica to where its masters are now, every ten minutes: for who lets no job of Spark's run all day.

Each run reads what came since the last one, commits it, acknowledges it, brings the typed tables on, and ends. The next
one goes on from the position in the table, whatever became of this one: a run that was killed is not repeated but
continued. It never runs twice at once; where one takes longer, the runs that were due meanwhile fall out.

Turn it on where no `logtwin replicate` runs for the same warehouse: the log has one job at a time, and a run beside one
is refused. A producer that waits for the lakehouse (SYNC_MASTER) waits until the next run: for that let a job run. And
a master must hold what came between two runs: its retention has to be longer than the time between them.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param
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
