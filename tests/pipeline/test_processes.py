"""A program beside ours ends with us, however we end; a stream begins while many files are open."""

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from pipeline.system.processes import child_process
from tests.patience import PATIENCE_S, wait_until
from tests.pipeline.standalone import PROJECT

_STARTER = "import sys\nfrom pipeline.system.processes import child_process\n"
_STARTER += (
    "with child_process(['sleep', '600']) as process:\n    print(process.pid, flush=True)\n    sys.stdin.read()\n"
)
SCRIPT = """
import os, resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from pipeline.system.processes import prepare_for_many_files
from pipeline.spark.session import build_session
spark = build_session({"spark.driver.memory": "512m"})
prepare_for_many_files(spark)
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
came = threading.Event()
query = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, number: came.set()).start()
print("came" if came.wait(60) else "nothing came", flush=True)
os._exit(0)
"""


def is_running(pid: int) -> bool:
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def test_it_ends_with_the_block() -> None:
    with child_process(["sleep", "600"]) as process:
        wait_until(lambda: psutil.Process(process.pid).name() == "sleep", "the program in the place of ours")
    assert not is_running(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only there the kernel can be asked for it")
def test_it_ends_when_we_are_killed() -> None:
    command = [sys.executable, "-c", _STARTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        wait_until(lambda: psutil.Process(pid).name() == "sleep", "the program")
        starter.kill()
        starter.wait(PATIENCE_S)
    wait_until(lambda: not is_running(pid), "its end")


@pytest.mark.spark
def test_its_start_keeps_our_connections_to_the_jvm(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    jvm: Any = spark._jvm
    has_asked, may_ask_again = threading.Event(), threading.Event()

    def ask_twice() -> None:
        jvm.System.currentTimeMillis()
        has_asked.set()
        may_ask_again.wait(PATIENCE_S)
        jvm.System.currentTimeMillis()

    with caplog.at_level(logging.INFO), ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask_twice)
        assert has_asked.wait(PATIENCE_S)
        with child_process(["true"]) as process:
            process.wait(PATIENCE_S)
        may_ask_again.set()
        asking.result(PATIENCE_S)
    assert "Exception while sending command" not in caplog.text


@pytest.mark.nightly  # a process with a JVM of its own
@pytest.mark.spark
@pytest.mark.timeout(200)
def test_batches_come_to_a_process_with_more_than_a_thousand_files() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], cwd=PROJECT, capture_output=True, text=True, timeout=180)
    assert "\ncame\n" in f"\n{ended.stdout}", f"{ended.stdout}\n{ended.stderr}"[-3000:]
