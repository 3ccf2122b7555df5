"""Compares a replica with its master, chunk by chunk: the bytes rebuilt from the table against the master's own.

`logtwin_verify` reads a sample every night, `logtwin_verify_whole` everything every Sunday. A difference fails the run
at once, without another try, and is recorded as an incident: `logtwin incidents list` says what differs, and `logtwin
repair` heals it. An interrupted try is resumed by the next one.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Param
from logtwin_submit import COMMON, WHERE, Verb, log_param

SAMPLE = {
    "sample": Param(
        0.1,
        type="number",
        exclusiveMinimum=0,
        maximum=1,
        title="Sample",
        description="which share of the bytes to compare, at least; 0.1 is a tenth, drawn by chance",
    )
}


def verification(dag_id: str, description: str, schedule: str, sample: dict[str, Param]) -> DAG:
    """A DAG with one task, ``logtwin verify``."""
    params = {
        "log": log_param(default=None, type=["null", "string"], description="one log's id; empty: all"),
        **sample,
        "max_mb_per_s": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            title="Speed limit",
            description="MB a second, so that the master has time for others; empty: none",
        ),
        **WHERE,
    }
    with DAG(
        dag_id,
        description=description,
        doc_md=__doc__,
        schedule=schedule,
        max_active_runs=1,
        params=params,
        **COMMON,
    ) as dag:
        Verb(task_id="verify", verb="verify", options=("log", *sample, "max_mb_per_s"))
    return dag


daily = verification("logtwin_verify", "compares a sample of the replica with the master", "0 3 * * *", SAMPLE)
weekly = verification("logtwin_verify_whole", "compares the whole replica with the master", "0 5 * * 0", {})
