"""The tables' storage goes away for a moment, at each place where a batch needs it: the job waits, and goes on.

The faults are real exceptions of a Hadoop file system under real Kernel and Spark (`faulty_storage`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sinks.batch.result import BatchStep
from sources.errors import StorageUnreachable
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.faulty_storage import FaultyStorage, installed
from tests.pipeline.read_back import assert_whole
from tests.pipeline.running import job_config, replicate_now, run_until

pytestmark = pytest.mark.spark

A_COMMIT = r"rename .*/log/_delta_log/0+[2-9]\.json"


@pytest.fixture(scope="module")
def storage(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyStorage]:
    with installed(spark, tmp_path_factory.mktemp("faulty")) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> FaultyLog:
    log = FaultyLog(tmp_path / "master")
    log.append(random.Random(1), 100)
    return log


@pytest.fixture
def config(tmp_path: Path, log: FaultyLog) -> Config:
    config = job_config(tmp_path / "lake", path=str(log.path), max_bytes_per_trigger=log.end // 2 + 1000)
    return config.model_copy(update={"retry_wait_max_s": 0.1})


@pytest.mark.parametrize(
    ("on", "kind", "after", "times"),
    [
        # The commit lands, nobody is told, and the table cannot be looked at either
        pytest.param(
            r"(rename|list) .*/log/_delta_log.*", "java.net.SocketTimeoutException", True, -1, id="answer lost"
        ),
        pytest.param(
            r"rename .*/checkpoint-.*/offsets/1",
            "java.net.ConnectException",
            False,
            1,
            id="Spark's mark",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_job_waits_for_the_storage_and_writes_everything_once(
    spark: SparkSession,
    storage: FaultyStorage,
    log: FaultyLog,
    config: Config,
    on: str,
    kind: str,
    after: bool,
    times: int,
) -> None:
    end, files = log.end, Counter[BatchStep]()
    with ExitStack() as fault:

        def break_at_the_second_batch(step: BatchStep) -> None:
            files[step] += 1
            if step is BatchStep.FILES and files[step] == 2 and times < 0:
                fault.enter_context(storage.failing(on, kind=kind, after=after, times=times))

        if times > 0:
            fault.enter_context(storage.failing(on, kind=kind, after=after, times=times))
        job = Job(spark, config, available_now=False, on_step=break_at_the_second_batch)
        job.start()
        try:
            waited = run_until(job, lambda now: now.phase in (Phase.WAITING, Phase.FAILED))
            assert waited.phase is Phase.WAITING
            storage.heal()
            done = run_until(job, lambda now: now.position == end and now.phase is Phase.RUNNING)
        finally:
            job.close()
    assert isinstance(waited.error, StorageUnreachable)
    assert waited.error.log == "rocketmq/test"
    assert kind in str(waited.error.found)
    assert (set(done.failures), done.error) == ({"StorageUnreachable"}, None)
    assert_whole(Path(config.warehouse), log.data())


@pytest.mark.nightly
def test_a_run_to_the_end_does_not_wait_and_is_run_again(
    spark: SparkSession, storage: FaultyStorage, log: FaultyLog, config: Config
) -> None:
    with storage.failing(A_COMMIT, times=-1), pytest.raises(StorageUnreachable, match="SocketTimeout") as caught:
        replicate_now(spark, config)
    assert caught.value.exit_code == 6
    replicate_now(spark, config)
    assert_whole(Path(config.warehouse), log.data())
