import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from sources.datasource import RECORDS_SCHEMA, OffsetStreamReader, SourceOptions, register
from sources.errors import AboveMaximum, BelowMinimum, ConfigurationError, LogtwinError, error_types
from sources.options import parse_options
from sources.registry import open_log
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from tests.pipeline.masters import embedded_master
from tests.truth import Fixture

pytestmark = pytest.mark.spark
_SAID = re.compile(r"^sources\.errors\.(\w+): (.+)$", re.M)


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def read(spark: SparkSession, fixture: Fixture, **options: Any) -> DataFrame:
    return spark.read.format("logtwin").option("path", str(fixture.commitlog_path)).options(**options).load()


def offsets(frame: DataFrame) -> list[int]:
    return [row.offset for row in frame.select("offset").collect()]


def truth_offsets(fixture: Fixture) -> list[int]:
    return [row["physical_offset"] for row in fixture.rows]


def error_said(text: str) -> LogtwinError:
    """The last one that `text`, of an exception of Spark's, quotes: of its type, with the whole message as its problem.

    What people are not to read is not in it.
    """
    said = _SAID.findall(text)
    assert said, text[:4000]
    assert "logtwin-error" not in text
    assert "direct cause" not in text
    name, message = said[-1]
    return error_types()[name](message)


def error_of(action: Any) -> LogtwinError:
    with pytest.raises(PySparkException) as caught:
        action()
    return error_said(str(caught.value))


def test_a_batch_read_yields_every_record_once(spark: SparkSession, fixture_550: Fixture) -> None:
    frame = read(spark, fixture_550, id="rocketmq/b", splitBytes=100_000)
    assert frame.columns == RECORDS_SCHEMA.names
    # each split is 100 kB and what its last record, of up to 200 kB, has beyond that
    assert fixture_550.max_offset / 300_000 < frame.rdd.getNumPartitions() <= fixture_550.max_offset / 100_000
    assert sorted(offsets(frame)) == truth_offsets(fixture_550)
    assert frame.select("log_id").distinct().collect() == [Row(log_id="rocketmq/b")]


def test_a_read_starts_at_the_record_at_or_after_its_offset(spark: SparkSession, fixture_550: Fixture) -> None:
    known = truth_offsets(fixture_550)
    seed = random.Random(3)
    for _ in range(3):
        start = seed.randrange(fixture_550.max_offset)
        end = seed.randrange(start, fixture_550.max_offset + 1)
        frame = read(spark, fixture_550, startingOffset=start, endingOffset=end)
        first = next((at for at in known if at >= start), None)
        last = next((at for at in known if at >= end), fixture_550.max_offset)
        assert sorted(offsets(frame)) == [at for at in known if first is not None and first <= at < last]


def test_a_stream_delivers_the_log_once_in_bounded_batches(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path
) -> None:
    seen: list[list[int]] = []
    options = {"path": str(fixture_550.commitlog_path), "maxBytesPerTrigger": "1000000"}
    query = stream(spark, options, tmp_path, lambda batch, _: seen.append(sorted(offsets(batch))))
    assert [at for batch in seen for at in batch] == truth_offsets(fixture_550)
    assert len(seen) == 4  # 3.8 MB in batches of 1 MB, each up to the end of a record
    last = json.loads((tmp_path / "offsets" / "3").read_text().splitlines()[-1])
    assert last == {"offset": fixture_550.max_offset}
    (source,) = query.lastProgress["sources"]  # type: ignore[index]
    assert json.loads(source["latestOffset"]) == {"offset": fixture_550.max_offset}


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"maxBytePerTrigger": "1"}, ConfigurationError, ["maxbytepertrigger", "'maxBytesPerTrigger'"]),
        ({"onLoss": "record"}, ConfigurationError, ["onLoss", "rocketmq/unnamed", "quarantine"]),
        ({"startingOffset": 999_999_999}, AboveMaximum, ["999999999", "rocketmq/unnamed"]),
        ({"startingOffset": 500, "endingOffset": 100}, ConfigurationError, ["endingOffset", "startingOffset"]),
    ],
)
def test_mistakes_are_named(
    spark: SparkSession, fixture_550: Fixture, options: dict[str, Any], kind: type[LogtwinError], words: list[str]
) -> None:
    error = error_of(lambda: read(spark, fixture_550, **options).count())
    assert isinstance(error, kind)
    for word in words:
        assert word in str(error)


def test_latest_starts_after_what_is_there(spark: SparkSession, fixture_550: Fixture, tmp_path: Path) -> None:
    seen: list[int] = []
    options = {"path": str(fixture_550.commitlog_path), "startingOffset": "latest"}
    stream(spark, options, tmp_path, lambda batch, _: seen.extend(offsets(batch)))
    assert seen == []
    assert read(spark, fixture_550, startingOffset="latest").count() == 0


@pytest.mark.parametrize("parallel", ["false", pytest.param("true", marks=pytest.mark.nightly)])
def test_records_over_ha(spark: SparkSession, fixture_550: Fixture, tmp_path: Path, parallel: str) -> None:
    seen: list[int] = []
    with embedded_master(tmp_path / "store", commitlog=fixture_550.commitlog_path) as master:
        options = {**master.options, "maxBytesPerTrigger": "900001", "splitBytes": "300001", "parallelReads": parallel}
        stream(spark, options, tmp_path / "c", lambda batch, _: seen.extend(sorted(offsets(batch))))
        batch = spark.read.format("logtwin").options(**master.options).load()
        assert sorted(offsets(batch)) == truth_offsets(fixture_550)
    assert seen == truth_offsets(fixture_550)


WAITS = DoubleWriteSettings(role="SYNC_MASTER")


def test_a_stream_of_records_is_no_replica_to_producers_that_wait(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path
) -> None:
    """Its first batch may promise nothing, but its second one would."""
    store = tmp_path / "store"
    with embedded_master(store, commitlog=fixture_550.commitlog_path, double_write=WAITS) as master:
        with master.watched() as counted:
            error = error_of(lambda: stream(spark, master.options, tmp_path / "c", lambda batch, _: None))
        assert isinstance(error, ConfigurationError)
        assert "is no replica" in str(error)
        assert "parallelReads" in str(error)
        assert counted == set()
        seen: list[int] = []
        trusted = {**master.options, "parallelReads": "true"}
        stream(spark, trusted, tmp_path / "t", lambda batch, _: seen.extend(offsets(batch)))
        assert sorted(seen) == truth_offsets(fixture_550)


def stream(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, on_batch: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """A stream of what is there now, until it has ended."""
    query = (
        spark.readStream.format("logtwin")
        .options(**options)
        .load()
        .writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_stream_below_the_master_s_minimum_or_above_its_maximum_is_an_error(
    fixture_550: Fixture, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(fixture_550.commitlog_path, tmp_path / "commitlog"))
    options = parse_options(SourceOptions, {"path": str(path)}, where="test")
    reader = OffsetStreamReader(open_log(options), options)
    with pytest.raises(AboveMaximum):
        reader.latestOffset({"offset": 99_999_999}, ReadAllAvailable())
    (path / "00000000000000000000").unlink()
    with pytest.raises(BelowMinimum, match="1048576"):
        reader.latestOffset({"offset": 5}, ReadAllAvailable())
