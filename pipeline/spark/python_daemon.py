"""Spark's Python daemon with the imports already done, so that the workers it forks begin to work at once.

Spark starts a daemon for each kind of Python worker, which forks a worker for each task that runs at the same time. The
imports of pyarrow and this project cost each worker most of a second of processor time. Here they are done once, before
the first fork. They start no thread. (The worker that plans a stream is not forked: Spark starts it as a process of its
own, and it should import little, see `sources/registry.py`.)

The imported objects are frozen in the garbage collector. A worker collects after each task, and would walk through all
of them each time: 0.1 s of processor time, which also copies pages that the forks share.

The daemon's socket is in a folder of its own process. Spark would put it beside the driver's: in a folder that another
host of a cluster does not have, or in the temporary folder, where the socket of a killed daemon stays for ever.

``spark.python.daemon.module`` selects this module (`pipeline.spark.session`). On a cluster it comes with the submitted
wheel.
"""

from __future__ import annotations

import gc
import os

import pandas  # type: ignore[import-untyped]  # noqa: F401  (pyarrow does, for any list)
from pyspark.daemon import manager

import sinks.batch.tasks
import sinks.delta.spark_jobs  # noqa: F401
import sources.datasource
import sources.rocketmq.columns.body_crcs
import sources.rocketmq.columns.loops  # noqa: F401  (compiled, or loaded)
from pipeline.system.folders import process_folder

if __name__ == "__main__":
    os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"] = str(process_folder())
    gc.freeze()
    manager()
