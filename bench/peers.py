"""What benchmarks need while they run: a Spark session, for some with Spark's Kafka source; and a real Kafka broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.contestants import CODEC
from pipeline.demo.kafka_broker import running_broker
from pipeline.spark.session import build_session
from sinks.storage.place import LOCAL, Place

CORES = 2
ON_CORES = {"spark.master": f"local[{CORES}]"}
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_KAFKA_CONNECTOR = (
    # with the token provider of 4.0.0: that of 4.2.0 was never published
    f"ivy://org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0?transitive=true&exclude={_TOKENS}",
    f"ivy://{_TOKENS}:4.0.0?transitive=false",
)


@contextmanager
def plain_session(folder: Path, properties: Mapping[str, str], warehouse: Place = LOCAL) -> Iterator[SparkSession]:
    """A session with `properties` over logtwin's own, for that `warehouse`. The output of its JVM is in `folder`."""
    log_file = folder / "spark.log"
    spark = build_session(properties, warehouse=warehouse, name="bench", log_file=log_file)
    try:
        yield spark
    finally:
        spark.stop()
        log_file.unlink()


@contextmanager
def running_session(folder: Path, *, heap: str = "2g") -> Iterator[SparkSession]:
    """A session for both contestants, otherwise like `plain_session`."""
    with plain_session(folder, {**ON_CORES, "spark.driver.memory": heap, **CODEC}) as spark:
        for jar in _KAFKA_CONNECTOR:
            spark.sql(f"ADD JAR '{jar}'")
        yield spark


@contextmanager
def lone_broker(folder: Path) -> Iterator[str]:
    """Run a broker, and yield its address, for ``bootstrap.servers``. Its store is removed at the end."""
    try:
        with running_broker(folder / "broker") as server:
            yield server
    finally:
        shutil.rmtree(folder / "broker", ignore_errors=True)
