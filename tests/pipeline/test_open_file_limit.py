"""A stream begins while more files are open than select(2) knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.pipeline.standalone import PROJECT

SCRIPT = """
import os, resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from pipeline.system.open_file_limit import prepare_for_many_files
from pipeline.spark.session import build_session
spark = build_session({"spark.driver.memory": "512m"})
prepare_for_many_files(spark)
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
came = threading.Event()
query = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, number: came.set()).start()
print("came" if came.wait(60) else "nothing came", flush=True)
os._exit(0)
"""


@pytest.mark.nightly  # a process with a JVM of its own
@pytest.mark.spark
@pytest.mark.timeout(200)
def test_batches_come_to_a_process_with_more_than_a_thousand_files() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], cwd=PROJECT, capture_output=True, text=True, timeout=180)
    assert "\ncame\n" in f"\n{ended.stdout}", f"{ended.stdout}\n{ended.stderr}"[-3000:]
