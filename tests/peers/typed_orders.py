"""Orders as JSON, some of which are none, and what plain Python makes of them: the truth of typed tables."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

KINDS: Final[dict[str, Any]] = {"id": str, "n": int, "price": float, "late": str}


def value(chance: random.Random, step: int) -> bytes | None:
    """An order; now and then none, or one with a field that is not as the others'."""
    kind = chance.randrange(20)
    if kind < 2:
        return (None, b"{}x")[kind]
    fields: dict[str, Any] = {
        "id": f"k{chance.randrange(40)}",
        "n": chance.randrange(-9, 9),
        "price": chance.uniform(0, 9),
    }
    if step:
        fields["late"] = chance.choice(("a", "ü", None))
    if kind == 2:
        fields["n"] = "many"
    return json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode()


def model(given: Iterable[Mapping[str, Any]]) -> tuple[dict[Any, dict[str, Any]], dict[Any, bytes | None]]:
    """What plain Python makes of each `value`: rows by their `log_id` and `offset`, and the bodies that do not fit."""
    rows: dict[Any, dict[str, Any]] = {}
    apart: dict[Any, bytes | None] = {}
    for row in given:
        place, body = (row["log_id"], row["offset"]), row["value"]
        try:
            said = json.loads(bytes(body)) if body is not None else None
        except ValueError:
            said = None
        if not isinstance(said, dict):
            apart[(*place, None)] = body
            continue
        wrong = {name for name, one in said.items() if one is not None and type(one) is not KINDS[name]}
        apart |= {(*place, name): body for name in wrong}
        rows[place] = {name: one for name, one in said.items() if one is not None and name not in wrong}
    return rows, apart


def fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in KINDS if row.get(name) is not None}


def read(spark: SparkSession, lake: Path, table: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.format("delta").load(f"{lake}/{table}").collect()]


def assert_appended(spark: SparkSession, lake: Path, given: Iterable[Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Table `all_orders` and what does not fit are what `model` makes of `given`. Returns its rows."""
    expected, apart = model(given)
    rows = read(spark, lake, "tables/all_orders")
    assert len(rows) == len(expected)
    assert {(row["log_id"], row["offset"]): fields(row) for row in rows} == expected
    unfit = [row for row in read(spark, lake, "unfit") if row["table"] == "all_orders"]
    assert {(row["log_id"], row["offset"], row["column"]): row["body"] for row in unfit} == apart
    return expected
