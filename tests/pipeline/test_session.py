"""How the JVM of a session is started."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from pipeline.session import COMPILE_LATER


def _java(spark: SparkSession) -> psutil.Process:
    jvm: Any = spark._jvm
    return psutil.Process(jvm.java.lang.ProcessHandle.current().pid())


@pytest.mark.spark
def test_the_jvm_of_a_session_hands_to_c2_what_runs_ten_times_as_often(spark: SparkSession) -> None:
    java = _java(spark)
    assert set(COMPILE_LATER.split()) <= set(java.cmdline())
    flags = subprocess.run(
        [java.exe(), "-XX:+PrintFlagsFinal", "-version"], check=True, capture_output=True, text=True, env={}
    ).stdout.split("\n")
    shipped = {line.split()[1]: line.split()[3] for line in flags if "Tier4" in line}
    wanted = dict(one.removeprefix("-XX:").split("=") for one in COMPILE_LATER.split() if "=" in one)
    assert len(wanted) == 4
    assert wanted == {name: str(10 * int(shipped[name])) for name in wanted}


@pytest.mark.spark
def test_a_jvm_that_has_other_compilers_starts_nevertheless(spark: SparkSession) -> None:
    unknown = COMPILE_LATER.replace("Tier4", "Tier9")
    assert subprocess.run([_java(spark).exe(), *unknown.split(), "-version"], capture_output=True).returncode == 0


@pytest.mark.spark
def test_the_jvm_of_a_session_says_what_logtwin_lets_it_say(spark: SparkSession) -> None:
    [given] = [one for one in _java(spark).cmdline() if one.startswith("-Dlog4j2.configurationFile=file:")]
    assert Path(given.partition("file:")[2]).exists()
