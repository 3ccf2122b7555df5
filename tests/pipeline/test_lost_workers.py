"""Python workers of Spark's die, or do not start: a running job does the batch again."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sinks.delta.spark_jobs import JobFacts, job_failure, out_of_memory
from sources.datasource import register
from sources.errors import ReplicaError, WorkerLost
from sources.rocketmq.producer.workload import send_workload, workload
from tests.patience import PATIENCE_S
from tests.pipeline.masters import embedded_master
from tests.pipeline.python_workers import daemons, workers
from tests.pipeline.read_back import assert_whole
from tests.pipeline.running import job_config, run_until

DID_NOT_START = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.spark.api…"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (DID_NOT_START, "failed to connect back"),
        ("Python worker exited unexpectedly (crashed)", "exited unexpectedly"),
        ("Job aborted: Lost task 0.0: java.lang.OutOfMemoryError: Java heap space\n\tat x", "Java heap space"),
        ('Traceback:\n  File "x.py", line 1, in y\nMemoryError\n\n\tat x', "MemoryError"),
        ("Traceback:\npyarrow.lib.ArrowMemoryError: malloc of size 7 failed\n", "malloc of size 7"),
        ("org.apache.spark.SparkException: Task not serializable", None),
        ("no space", None),
        ("Traceback:\nValueError: found 'MemoryError: no' in a body\n", None),  # which quotes it
    ],
)
def test_what_spark_says_of_a_lost_worker_is_worth_a_retry(text: str, found: str | None) -> None:
    facts = JobFacts(problem="the job failed", log="rocketmq/a", offset=7, hint="")
    error = out_of_memory(Py4JError(text), facts) or job_failure(Py4JError(text), facts)
    assert (error.log, error.offset) == ("rocketmq/a", 7)
    assert (type(error), error.is_transient) == ((ReplicaError, False) if found is None else (WorkerLost, True))
    assert (found or "") in str(error)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, without any dead worker left for the next one."""
    register(spark)
    yield spark
    sound = 0
    for _ in range(20):
        try:
            spark.sparkContext.range(0, 8, 1, 8).map(str).collect()
            spark.range(0, 8, 1, 8).mapInArrow(lambda batches: batches, "id bigint").collect()  # has workers of its own
        except (PySparkException, Py4JError):
            sound = 0
        else:
            sound += 1
        if sound == 3:
            return
    raise AssertionError("workers go on failing")


def kill_workers() -> None:
    killed = [*workers(), *daemons()]
    assert killed
    for process in killed:
        process.kill()
    psutil.wait_procs(killed, timeout=PATIENCE_S)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_running_job_outlives_its_workers_and_a_run_to_the_end_does_not_give_up_at_once(
    session: SparkSession, tmp_path: Path
) -> None:
    with embedded_master(tmp_path / "store") as master:
        config = job_config(tmp_path / "lake", **master.options)
        send_workload(master.master.address, workload(1), count=50)
        job = Job(session, config, available_now=False)
        job.start()
        try:
            run_until(job, lambda now: now.position == master.end)
            kill_workers()
            send_workload(master.master.address, workload(2), count=50)
            end = master.end
            done = run_until(job, lambda now: now.position == end and now.phase is Phase.RUNNING)
        finally:
            job.close()
        assert set(done.failures) == {"WorkerLost"}
        send_workload(master.master.address, workload(3), count=50)
        job = Job(session, config, available_now=True)
        kill_workers()
        job.start()
        job.run(poll_interval_s=0.02)
        done = job.progress()[0]
        assert (done.phase, done.position, set(done.failures)) == (Phase.DONE, master.end, {"WorkerLost"})
        log = master.log()
    assert_whole(tmp_path / "lake", log)
