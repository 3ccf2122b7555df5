"""How the JVM of a session and its workers are started."""

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipeline.spark.session import COMPILE_LATER, warm_up

WAIT_S = 60.0


def _java(spark: SparkSession) -> psutil.Process:
    jvm: Any = spark._jvm
    return psutil.Process(jvm.java.lang.ProcessHandle.current().pid())


@pytest.mark.spark
def test_c2_compiles_what_runs_ten_times_as_often_as_it_would(spark: SparkSession) -> None:
    java = _java(spark)
    assert set(COMPILE_LATER.split()) <= set(java.cmdline())
    flags = subprocess.run(
        [java.exe(), "-XX:+PrintFlagsFinal", "-version"], check=True, capture_output=True, text=True, env={}
    ).stdout.split("\n")
    shipped = {line.split()[1]: line.split()[3] for line in flags if "Tier4" in line}
    wanted = dict(one.removeprefix("-XX:").split("=") for one in COMPILE_LATER.split() if "=" in one)
    assert len(wanted) == 4
    assert wanted == {name: str(10 * int(shipped[name])) for name in wanted}
    unknown = COMPILE_LATER.replace("Tier4", "Tier9")  # a JVM that has other compilers starts nevertheless
    assert subprocess.run([java.exe(), *unknown.split(), "-version"], capture_output=True).returncode == 0


@pytest.mark.spark
def test_the_jvm_of_a_session_has_the_logging_configuration_of_logtwin(spark: SparkSession) -> None:
    [given] = [one for one in _java(spark).cmdline() if one.startswith("-Dlog4j2.configurationFile=file:")]
    assert Path(given.partition("file:")[2]).exists()


@pytest.mark.spark
def test_a_worker_keeps_freed_pages(spark: SparkSession) -> None:
    array_bytes, arrays, turns = 8 << 20, 5, 8

    def faults(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def turn(_: int) -> int:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for buffer in [pa.allocate_buffer(array_bytes) for _ in range(arrays)]:
                np.frombuffer(buffer, np.uint8)[:] = 1
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

        list(batches)
        yield pa.RecordBatch.from_pydict({"faults": [turn(number) for number in range(turns)]})

    found = [row.faults for row in spark.range(1, numPartitions=1).mapInArrow(faults, "faults long").collect()]
    later, pages = found[turns // 2 :], array_bytes // resource.getpagesize()
    assert len(found) == turns
    assert sum(later) < pages * len(later)  # of one array a turn; a worker that gives back takes all five anew


@pytest.mark.spark
def test_local_files_get_no_hadoop_checksums_and_stale_ones_go(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    hadoop, configuration = jvm.org.apache.hadoop.fs, jvm.org.apache.hadoop.conf.Configuration
    ours = hadoop.Path(str(tmp_path)).getFileSystem(spark._jsc.hadoopConfiguration())
    others = hadoop.FileSystem.newInstanceLocal(configuration())  # as any other program has it

    def write(files: Any, name: str, text: str) -> None:
        out = files.create(hadoop.Path(str(tmp_path / name)), True)
        out.write(text.encode())
        out.close()

    def read(name: str) -> str:
        stream = others.open(hadoop.Path(str(tmp_path / name)))
        return bytes(stream.readAllBytes()).decode()

    for name in ("written over", "renamed over", "left alone"):
        write(others, name, "theirs")
    write(ours, "written over", "ours now")
    write(ours, "new", "ours as well")
    (tmp_path / "renamed over").unlink()  # what a store does that may not overwrite; the checksum stays behind
    ours.rename(hadoop.Path(str(tmp_path / "new")), hadoop.Path(str(tmp_path / "renamed over")))
    assert [read(name) for name in ("written over", "renamed over", "left alone")] == [
        "ours now",
        "ours as well",
        "theirs",
    ]
    assert [path.name for path in tmp_path.glob(".*.crc")] == [".left alone.crc"]
    (tmp_path / "left alone").write_text("broken")
    with pytest.raises(Exception, match="Checksum"):
        read("left alone")


def test_warming_up_never_fails() -> None:
    stopped = Mock(**{"sparkContext.defaultParallelism": 2})
    stopped.sparkContext.parallelize.side_effect = PySparkRuntimeError("there is no session any more")
    thread = warm_up(stopped)
    thread.join(WAIT_S)
    assert not thread.is_alive()
