"""Spark's Python daemon with the imports already done: what it forks begins to work at once.

Spark starts a daemon for each kind of Python worker, and forks one for each task that runs at the same time. What those
import, pyarrow and this project, costs each of them most of a second of processor time. Here it is imported once,
before the first fork. No thread is started by that. (The one that plans a stream is no fork, but a process that Spark
starts by itself: it should import little, `sources/registry.py`.)

What was imported is kept from the garbage collector: a worker collects after each task, and would walk through all of
it each time, 0.1 s of a processor, which also copies its pages out of what the forks share.

Its socket lies in a folder of its process. Spark would have it where the driver's are: in a folder that another host of
a cluster does not have, or in the temporary folder, where that of a killed one stays for ever.

In effect by ``spark.python.daemon.module`` (`pipeline.spark.session`). On a cluster it comes with the submitted wheel.
"""

from __future__ import annotations

import gc
import os

import pandas  # type: ignore[import-untyped]  # noqa: F401  (pyarrow does, for any list)
from pyspark.daemon import manager

import sources.datasource
import sources.rocketmq.columns.body_crcs
import sources.rocketmq.columns.loops  # noqa: F401  (compiled, or loaded)
from pipeline.system.process_folder import process_folder

if __name__ == "__main__":
    os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"] = str(process_folder())
    gc.freeze()
    manager()
