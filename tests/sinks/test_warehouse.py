"""Tables as Kernel makes them and Spark sees them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.spark_schemas import spark_schema
from sinks.tables import LEDGER, LOG, QUARANTINE, TableSpec
from sinks.warehouse import absolute, ensure_table, ensure_tables
from sources.errors import ConfigurationError

SPECS = (LOG, LEDGER)


@pytest.mark.spark
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_new_table_is_what_its_specification_says(spark: SparkSession, tmp_path: Path, spec: TableSpec) -> None:
    ensure_tables(spark, str(tmp_path))
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{spec.path(str(tmp_path))}`").collect()[0]
    assert detail["clusteringColumns"] == list(spec.clustering)
    assert detail["partitionColumns"] == []
    assert {"appendOnly", "clustering", "domainMetadata"} <= set(detail["tableFeatures"])
    assert detail["minReaderVersion"] == 1  # old readers read it
    assert detail["properties"]["delta.dataSkippingStatsColumns"] == ",".join(spec.statistics)
    schema = spark.read.format("delta").load(spec.path(str(tmp_path))).schema
    assert schema == spark_schema(spec.schema)
    assert all(field.metadata["comment"] for field in schema)


@pytest.mark.spark
def test_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    ensure_tables(spark, str(tmp_path))
    ensure_tables(spark, str(tmp_path))
    for spec in SPECS:
        snapshot = KernelTable(spark, spec.path(str(tmp_path))).snapshot()
        assert snapshot is not None
        assert snapshot.version == 0


@pytest.mark.spark
def test_jobs_that_start_at_once_find_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    together = threading.Barrier(4)
    failures: list[Exception] = []

    def start() -> None:
        together.wait()
        try:
            ensure_tables(spark, str(tmp_path))
        except ConfigurationError as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert len(list((tmp_path / "log/_delta_log").glob("*.json"))) == 1


@pytest.mark.spark
def test_a_table_of_somebody_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).withColumnRenamed("id", "offset").write.format("delta").save(f"{tmp_path}/log")
    with pytest.raises(ConfigurationError, match="not one that this version of logtwin made") as caught:
        ensure_tables(spark, str(tmp_path))
    assert "log_id string" in (caught.value.expected or "")
    assert "warehouse" in (caught.value.hint or "")


@pytest.mark.spark
def test_a_table_with_a_column_more_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    ensure_tables(spark, str(tmp_path))
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/ledger` ADD COLUMNS (mood STRING)")
    with pytest.raises(ConfigurationError) as caught:
        ensure_tables(spark, str(tmp_path))
    assert "mood string" in (caught.value.found or "")


@pytest.mark.spark
def test_positions_that_would_expire_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    ensure_tables(spark, str(tmp_path))
    spark.sql(
        f"ALTER TABLE delta.`{tmp_path}/log` "
        "SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 7 days')"
    )
    with pytest.raises(ConfigurationError, match="setTransactionRetentionDuration"):
        ensure_tables(spark, str(tmp_path))


@pytest.mark.spark
def test_an_operator_may_keep_the_log_longer(spark: SparkSession, tmp_path: Path) -> None:
    ensure_tables(spark, str(tmp_path))
    longer = "SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 99 days')"
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/log` {longer}")
    ensure_tables(spark, str(tmp_path))


@pytest.mark.spark
def test_what_was_kept_of_a_loss_is_never_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = QUARANTINE.path(str(tmp_path))
    ensure_table(KernelTable(spark, path), QUARANTINE)
    row = ("rocketmq/broker-a", 0, 100, 104, "undecodable", "zeros", b"\0\0\0\0")
    frame = spark.createDataFrame([row], spark_schema(QUARANTINE.schema))
    frame.write.format("delta").mode("append").save(path)
    with pytest.raises(UnsupportedOperationException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        DeltaTable.forPath(spark, path).delete()


def test_a_warehouse_is_absolute_or_a_uri(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("./warehouse") == f"{tmp_path}/warehouse"
    assert absolute("/data/twin/") == "/data/twin"
    assert absolute("s3a://bucket/twin/") == "s3a://bucket/twin"
    assert absolute("file:/data/twin") == "file:/data/twin"
