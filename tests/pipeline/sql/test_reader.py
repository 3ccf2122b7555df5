"""Ctrl-C while a statement runs."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from pipeline.sql.reader import Reader

pytestmark = pytest.mark.spark

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.id * b.id % 7 = 9"


def test_control_c_stops_what_runs(reader: Reader) -> None:
    jobs = reader.spark.sparkContext.statusTracker()

    def interrupt_the_first_job() -> None:
        pause = threading.Event()
        while not jobs.getActiveJobsIds():
            pause.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    (endless,) = reader.check(ENDLESS)
    watch = threading.Thread(target=interrupt_the_first_job)
    watch.start()
    with pytest.raises(KeyboardInterrupt):
        reader.answer(endless, lambda frame: frame.collect())
    watch.join()
    assert jobs.getActiveJobsIds() == []
    (next_one,) = reader.check("SELECT 1 AS n")
    assert reader.answer(next_one, lambda frame: frame.collect()[0].n) == 1
