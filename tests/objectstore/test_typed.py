"""Typed tables on S3: their commits go by the same way as the log's, and carry the schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from sinks.typed.rebuild import drop, rebuild
from sources.datasource import register
from tests.objectstore.lake import Lake
from tests.pipeline.typed.world import definition, fields, world_of

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_columns_keys_and_a_table_made_anew(spark: SparkSession, tmp_path: Path, lake: str, s3: S3Server) -> None:
    register(spark)
    by_key = {"key": ("id",), "deleted": {"op": ("d",)}}
    with world_of(spark, tmp_path, lake) as world:
        world.send({"id": "a", "n": 1}, {"id": "b", "n": 1}, b"broken")
        world.follow(**by_key)
        world.send({"id": "a", "n": 2.5, "late": True}, {"id": "b", "op": "d"}, {"id": "c", "n": 3})
        world.follow(**by_key)
        rows = world.rows()
        assert fields(rows) == [
            {"_deleted": False, "id": "a", "n": 2.5, "late": True},
            {"_deleted": True, "id": "b"},
            {"_deleted": False, "id": "c", "n": 3.0},
        ]
        assert [change[:2] for change in world.changes()] == [
            ("id", "added"), ("n", "added"), ("late", "added"), ("n", "widened"),
        ]  # fmt: skip
        assert [row["reason"] for row in world.unfit()] == ["not_json"]
        assert rebuild(spark, lake, definition(**by_key)) is not None
        assert world.rows() == rows
        read = Lake(s3).table("tables/orders").to_pyarrow_table()
        assert sorted(read["id"].to_pylist()) == ["a", "b", "c"]
        assert drop(spark, lake, "orders")
        assert world.unfit() == []
