"""A warehouse on S3 as others see it: ``s3://`` and ``s3a://`` are one place to Spark SQL and Kernel, and what
docs/other-engines.md shows runs there as it stands, with AWS's own variables, and gives what the view gives.
"""

import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.demo.s3_server import S3Server
from pipeline.sql.reader import Reader
from sinks.state.log_table import LogTable
from sources.offsets import LogId
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.lake import options_of
from tests.objectstore.s3_requests import Kind
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.running import replicate_now
from tests.sinks.views.test_other_engines import COLUMNS, DELTA_RS, DUCKDB, POLARS, plain, run

LOG = LogId.parse("rocketmq/broker-a")
RANGES = "SELECT start, `end` FROM {} ORDER BY start"
MESSAGES = f"SELECT {', '.join(COLUMNS)} FROM messages WHERE batch_index IS NULL"  # noqa: S608 - no words of others


def job(scheme: str, server: S3Server, endpoint: str, log: FaultyLog) -> Config:
    storage = {"endpoint": endpoint, "access_key": "env:HOME", "secret_key": "env:HOME", "patience_s": 4.0}
    logs = [{"id": str(LOG), "path": str(log.path)}]
    given = {"warehouse": f"{scheme}://{server.bucket}/lake", "storage": storage, "logs": logs}
    return parse({**given, "trigger_interval_s": 0.1, "spark": {"spark.sql.shuffle.partitions": "2"}}, where="test")


def asked(config: Config, text: str) -> list[list[dict[str, Any]]]:
    """As ``logtwin sql`` answers: the rows of each statement."""

    def rows(frame: DataFrame) -> list[dict[str, Any]]:
        return list(frame.toArrow().to_pylist())

    reader = Reader.opened(config, None)
    return [reader.answer(one, rows) for one in reader.check(text)]


@pytest.mark.spark
@pytest.mark.nightly
def test_both_schemes_and_other_engines(
    spark: SparkSession, lake: str, s3: S3Server, s3_link: FaultProxy, log: FaultyLog, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    one, other = (job(scheme, s3, s3_link.endpoint, log) for scheme in ("s3a", "s3"))
    replicate_now(spark, one)
    log.append(random.Random(2), 20)
    replicate_now(spark, other)  # goes on where the other ended
    states = [LogTable(spark, f"{config.warehouse}/log", LOG).read().state for config in (one, other)]
    assert [state and state.offset for state in states] == [log.end] * 2
    ranges = spark.sql(RANGES.format(f"delta.`{one.warehouse}/ledger`")).toArrow().to_pylist()
    again, rows = asked(other, f"{RANGES.format('ledger')}; {MESSAGES}")
    messages = plain(rows)
    assert (ranges[0]["start"], ranges[-1]["end"]) == (0, log.end)
    assert again == ranges
    assert len(messages) > 40

    for name, value in options_of(s3).items():
        monkeypatch.setenv(name, value)
    place = f"s3://{s3.bucket}/lake"
    assert plain(run(DUCKDB, place, tmp_path)["messages"].to_arrow_table().to_pylist()) == messages
    assert plain(run(POLARS, place, tmp_path)["messages"].collect().to_dicts()) == messages
    assert run(DELTA_RS, place, tmp_path)["position"] == log.end


def test_delta_rs_writes_a_version_only_where_there_is_none(s3: S3Server, s3_link: FaultProxy) -> None:
    """So docs/object-stores.md calls it safe beside logtwin."""
    options = options_of(s3, s3_link.endpoint)
    with s3_link.counted() as seen:
        for _ in range(2):
            write_deltalake(f"s3://{s3.bucket}/foreign", pa.table({"a": [1]}), mode="append", storage_options=options)
    versions = [one.request for one in seen.of(Kind.PUT) if re.search(r"_delta_log/\d{20}\.json$", one.request.key)]
    assert len(versions) == 2
    assert all(one.is_conditional for one in versions)
