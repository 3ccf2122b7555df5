"""The logs of real brokers, by path and over HA: every field as RocketMQ decodes it, every byte as it was written."""

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.masters import embedded_master
from tests.pipeline.read_back import assert_whole, table_of
from tests.pipeline.running import job_config, replicate_now
from tests.truth import Fixture

SAME_NAME = ("queue_id", "queue_offset", "magic", "body_crc", "flag", "sys_flag", "size", "topic", "reconsume_times",
             "prepared_transaction_offset", "born_host", "store_host", "properties", "tags_code")  # fmt: skip


def millis(timestamp: datetime) -> int:
    return round(timestamp.timestamp() * 1000)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_truth(row: dict[str, Any]) -> dict[str, Any]:
    if row["kind"] == "blank":
        return {"physical_offset": row["offset"], "size": row["size"], "magic": row["magic"], "blank": True}
    stored = row["body"] if row["stored_body"] is None else row["stored_body"]
    return {
        **{name: row[name] for name in SAME_NAME},
        "physical_offset": row["offset"],
        "store_timestamp": millis(row["store_timestamp"]),
        "born_timestamp": millis(row["born_timestamp"]),
        "body_len_raw": len(stored),
        "body_sha256_raw": sha256(stored),
        "body_len_decompressed": len(row["body"]),
        "body_sha256_decompressed": sha256(row["body"]),
    }


def assert_truth(lake: Path, fixture: Fixture) -> None:
    rows = table_of(lake, "log").to_pylist(maps_as_pydicts="strict")
    assert len(rows) == len(fixture.rows)
    for row, truth in zip(rows, fixture.rows, strict=True):
        found = as_truth(row)
        assert found == {name: truth[name] for name in found}
        properties = truth.get("properties", {})
        assert row["tags"] == properties.get("TAGS")
        assert row["unique_key"] == properties.get("UNIQ_KEY")
        keys = properties.get("KEYS")
        assert row["keys"] == (None if keys is None else [key for key in keys.split(" ") if key])


@pytest.mark.parametrize("max_bytes", [pytest.param(1 << 30, marks=pytest.mark.nightly), 1_000_000])
def test_by_path(session: SparkSession, fixture_log: Fixture, tmp_path: Path, max_bytes: int) -> None:
    sizes = {"max_bytes_per_trigger": max_bytes, "split_bytes": 123_457}
    replicate_now(session, job_config(tmp_path, path=str(fixture_log.commitlog_path), **sizes))
    assert_truth(tmp_path, fixture_log)
    assert_whole(tmp_path, fixture_log.log)


@pytest.mark.parametrize("max_bytes", [1 << 30, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_over_ha(session: SparkSession, fixture_log: Fixture, tmp_path: Path, max_bytes: int) -> None:
    with embedded_master(tmp_path / "store", commitlog=fixture_log.commitlog_path) as master:
        config = job_config(tmp_path / "lake", **master.options, max_bytes_per_trigger=max_bytes)
        replicate_now(session, config)
    assert_truth(tmp_path / "lake", fixture_log)
    assert_whole(tmp_path / "lake", fixture_log.log)
