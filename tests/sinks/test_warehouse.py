"""Tables as Kernel makes them and Spark sees them."""

from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import write_deltalake
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.tables import LEDGER, LOG, METADATA_TABLES, QUARANTINE, TableSpec
from sinks.warehouse import ensure_table, ensure_tables, spark_schema
from sources.errors import ConfigurationError


@pytest.mark.spark
@pytest.mark.parametrize("spec", [LOG, METADATA_TABLES[0]], ids=lambda spec: spec.name)
def test_a_new_table_is_what_its_specification_says(spark: SparkSession, tmp_path: Path, spec: TableSpec) -> None:
    ensure_table(KernelTable(spark, spec.path(str(tmp_path))), spec)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{spec.path(str(tmp_path))}`").collect()[0]
    assert detail["clusteringColumns"] == list(spec.clustering)
    assert detail["partitionColumns"] == list(spec.partitioning)
    assert {"appendOnly", "domainMetadata"} <= set(detail["tableFeatures"])
    assert "deletionVectors" not in detail["tableFeatures"]
    assert detail["minReaderVersion"] == 1  # old readers read it
    assert detail["properties"]["delta.dataSkippingStatsColumns"] == ",".join(spec.statistics)
    schema = spark.read.format("delta").load(spec.path(str(tmp_path))).schema
    assert schema == spark_schema(spec.schema)
    assert all(field.metadata["comment"] for field in schema)


def test_again_changes_nothing(plain: SparkSession, tmp_path: Path) -> None:
    ensure_tables(plain, str(tmp_path))
    ensure_tables(plain, str(tmp_path))
    assert [KernelTable(plain, spec.path(str(tmp_path))).existing().version for spec in (LOG, LEDGER)] == [0, 0]


def test_a_table_of_somebody_else_is_refused(plain: SparkSession, tmp_path: Path) -> None:
    write_deltalake(f"{tmp_path}/log", pa.table({"offset": [0, 1, 2]}))
    with pytest.raises(ConfigurationError, match="not one that this version of logtwin made") as caught:
        ensure_tables(plain, str(tmp_path))
    assert "log_id string" in (caught.value.expected or "")
    assert "warehouse" in (caught.value.hint or "")


@pytest.fixture
def log(plain: SparkSession, tmp_path: Path) -> KernelTable:
    ensure_tables(plain, str(tmp_path))
    return KernelTable(plain, LOG.path(str(tmp_path)))


def test_a_table_with_a_column_more_is_refused(plain: SparkSession, tmp_path: Path, log: KernelTable) -> None:
    schema = spark_schema(LOG.schema).add("mood", "string")
    log.replace(log.existing(), [], [], domains={}, schema=schema)
    with pytest.raises(ConfigurationError) as caught:
        ensure_tables(plain, str(tmp_path))
    assert "mood string" in (caught.value.found or "")


def test_positions_that_would_expire_are_refused(plain: SparkSession, tmp_path: Path, log: KernelTable) -> None:
    log.set_properties(log.existing(), {"delta.setTransactionRetentionDuration": "interval 7 days"})
    with pytest.raises(ConfigurationError, match="setTransactionRetentionDuration"):
        ensure_tables(plain, str(tmp_path))


def test_an_operator_may_keep_the_log_longer(plain: SparkSession, tmp_path: Path, log: KernelTable) -> None:
    log.set_properties(log.existing(), {"delta.logRetentionDuration": "interval 99 days"})
    ensure_tables(plain, str(tmp_path))


@pytest.mark.spark
def test_what_was_kept_of_a_loss_is_never_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = QUARANTINE.path(str(tmp_path))
    ensure_table(KernelTable(spark, path), QUARANTINE)
    row = ("rocketmq/broker-a", 0, 100, 104, "undecodable", "zeros", b"\0\0\0\0")
    frame = spark.createDataFrame([row], spark_schema(QUARANTINE.schema))
    frame.write.format("delta").mode("append").save(path)
    with pytest.raises(UnsupportedOperationException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        DeltaTable.forPath(spark, path).delete()
