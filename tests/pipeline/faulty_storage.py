"""The disk of the tests' Spark session, made to fail on demand: real Kernel and Spark then meet real IOExceptions."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyspark
from pyspark.sql import SparkSession

PROGRAM = Path(__file__).parent / "java" / "FaultyFileSystem.java"


class FaultyStorage:
    """Hadoop's local file system in this JVM, from `installed` on, until the block ends."""

    def __init__(self, jvm: Any) -> None:
        self._system = jvm.java.lang.System

    @contextmanager
    def failing(
        self, on: str, *, times: int = 1, kind: str = "java.net.SocketTimeoutException", after: bool = False
    ) -> Iterator[None]:
        """What matches `on` ("operation path") fails so often, with `kind`; with `after` once it has been done."""
        given = {"on": on, "times": str(times), "class": kind, "after": str(after).lower(), "hits": "0"}
        for name, value in given.items():
            self._system.setProperty(f"logtwin.fault.{name}", value)
        try:
            yield
        finally:
            self._system.setProperty("logtwin.fault.times", "0")

    def heal(self) -> None:
        self._system.setProperty("logtwin.fault.times", "0")


@contextmanager
def installed(spark: SparkSession, folder: Path) -> Iterator[FaultyStorage]:
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run(
        ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(PROGRAM)], check=True, capture_output=True
    )
    jvm, hadoop = cast(Any, spark._jvm), spark._jsc.hadoopConfiguration()
    before = hadoop.getClassLoader()
    urls = spark._sc._gateway.new_array(jvm.java.net.URL, 1)  # type: ignore[union-attr]
    urls[0] = jvm.java.io.File(str(folder)).toURI().toURL()
    hadoop.setClassLoader(jvm.java.net.URLClassLoader(urls, before))
    hadoop.set("fs.file.impl", "FaultyFileSystem")
    hadoop.setBoolean("fs.file.impl.disable.cache", True)
    try:
        yield FaultyStorage(jvm)
    finally:
        hadoop.unset("fs.file.impl")
        hadoop.unset("fs.file.impl.disable.cache")
        hadoop.setClassLoader(before)
