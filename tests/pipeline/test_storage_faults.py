"""The tables' storage goes away for a moment: the job waits, and goes on.

The faults are real exceptions of a Hadoop file system under real Kernel and Spark (`faulty_storage`).
"""

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
from sinks.batch.proof import BatchStep
from sources.errors import StorageUnreachable
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.faulty_storage import FaultyStorage, installed
from tests.pipeline.read_back import assert_whole
from tests.pipeline.running import job_config, run_until

pytestmark = pytest.mark.spark


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


def test_a_job_waits_for_the_storage_and_writes_everything_once(
    spark: SparkSession, storage: FaultyStorage, log: FaultyLog, config: Config
) -> None:
    """The commit lands, nobody is told, and the table cannot be looked at either."""
    on, kind = r"(rename|list) .*/log/_delta_log.*", "java.net.SocketTimeoutException"
    end, files = log.end, Counter[BatchStep]()
    with ExitStack() as fault:

        def break_at_the_second_batch(step: BatchStep) -> None:
            files[step] += 1
            if step is BatchStep.FILES and files[step] == 2:
                fault.enter_context(storage.failing(on, kind=kind, after=True, times=-1))

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
