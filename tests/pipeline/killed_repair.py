"""A repair that is killed: ``python -m tests.pipeline.killed_repair LAKE PATH STEP`` dies once it did STEP, as with
``kill -9``: no handler, no flush, no goodbye to the JVM."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pipeline.spark.session import build_session
from sinks.healing.repair import Repair
from sinks.healing.repair_steps import RepairStep
from sources.registry import open_log
from tests.pipeline.running import job_config


def main(lake: str, path: str, last: str) -> None:
    def die(done: RepairStep) -> None:
        if done is RepairStep(last):
            os.kill(os.getpid(), signal.SIGKILL)

    config = job_config(Path(lake), path=path)
    spark = build_session({"spark.master": "local[1]", "spark.driver.memory": "512m"})
    Repair(spark, lake, open_log(config.logs[0]), on_step=die).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
