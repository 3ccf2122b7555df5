"""A job of a shard in a process of its own, without Spark: ``python -m tests.pipeline.shard_process CONFIG SHARD``.

It ends as ``logtwin replicate`` does: by SIGTERM between two batches, or killed.
"""

import logging
import sys
from pathlib import Path

import pytest

from pipeline.config import configuration
from pipeline.job.replicate import Job
from pipeline.system.signals import stop_by_signal
from tests.pipeline.group_in_process import use_plain


def main(config: str, shard: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    spark = use_plain(pytest.MonkeyPatch())
    job = Job(spark, configuration.load(Path(config)).in_shard(shard), available_now=False)
    with stop_by_signal(job.request_stop):
        job.start()
        job.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
