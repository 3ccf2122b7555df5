"""``[[tables]]``: what a typed table may be, and what is said of the others."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import parse
from pipeline.typed_tables_config import TypedTableConfig
from sources.errors import ConfigurationError
from sources.offsets import LogId

ORDERS: dict[str, Any] = {"name": "orders", "from": ["orders"]}


def table(**more: Any) -> TypedTableConfig:
    (found,) = parse({"tables": [{**ORDERS, **more}]}, where="test").tables
    return found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"name": "Orders"}, "small letters"),
        ({"name": "1st"}, "small letters"),
        ({"name": "log"}, "which every replica has"),
        ({"name": "messages"}, "which every replica has"),
        ({"from": []}, "from"),
        ({"from": ["orders", "kafka/prod/orders"]}, "not both"),
        ({"from": ["kafka/orders"]}, "kafka/<cluster>/<topic>"),
        ({"from": ["kafka/prod/orders"], "tags": ["a"]}, "logs and tags are of RocketMQ"),
        ({"mode": "upsert"}, "key with mode"),
        ({"key": ["id"]}, "key with mode"),
        ({"deletes": {"op": ["d"]}}, "deletes and tombstones with mode"),
        ({"tombstones": True}, "deletes and tombstones with mode"),
        ({"mode": "upsert", "key": ["id"], "tombstones": True}, "tombstones are of Kafka"),
        ({"mode": "upsert", "key": ["id"], "drop": ["id"]}, "id is a key"),
        ({"mode": "upsert", "key": ["id"], "mask": {"id": "null"}}, "id is a key"),
        ({"mode": "upsert", "key": ["id"], "schema": {"n": "int"}}, "id is a key, and needs a type"),
        ({"schema": {"id": "varchar"}}, "no such type"),
        ({"schema": {"bad name": "string"}}, "rename it"),
        ({"rename": {"id": "bad name"}}, "rename it"),
        ({"format": "text", "schema": {"id": "string"}}, "of text there is one column"),
        ({"format": "avro"}, "'json' or 'text'"),
        ({"compute": {"day": {"type": "date", "sql": "x"}}}, "compute with a schema that is declared"),
        ({"schema": {"n": "int"}, "compute": {"n": {"type": "date", "sql": "x"}}}, "cannot be called 'n'"),
        ({"schema": {"n": "int"}, "compute": {"offset": {"type": "int", "sql": "n"}}}, "cannot be called 'offset'"),
        ({"schema": {"n": "int"}, "compute": {"d": {"type": "day", "sql": "n"}}}, "no such type"),
        ({"schema": {"n": "int"}, "compute": {"d": {"type": "json", "sql": "n"}}}, "string or timestamp"),
        ({"mask": {"id": "rot13"}}, "'hash', 'null' or 'redact'"),
        ({"max_columns": 0}, "max_columns"),
        ({"schemas": "infer"}, "Did you mean 'schema'"),
    ],
)
def test_what_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        table(**more)


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="listed twice"):
        parse({"tables": [ORDERS, ORDERS]}, where="test")


def test_which_logs_it_follows() -> None:
    rocketmq, partition = LogId.parse("rocketmq/a"), LogId.parse("kafka/prod/orders/3")
    assert table().definition().follows(rocketmq)
    assert not table().definition().follows(partition)
    assert not table(logs=["rocketmq/b"]).definition().follows(rocketmq)
    of_kafka = table(**{"from": ["kafka/prod/orders"]}).definition()
    assert of_kafka.follows(partition)
    assert not of_kafka.follows(LogId.parse("kafka/prod/orders-new/3"))
    assert not of_kafka.follows(rocketmq)


def test_another_definition_is_told_from_the_same() -> None:
    made = table().definition().fingerprint
    assert table(on_bad="stop", max_columns=7).definition().fingerprint == made
    for more in (
        {"tags": ["a"]},
        {"schema": {"id": "int"}},
        {"drop": ["x"]},
        {"mask": {"x": "hash"}},
        {"where": "true"},
        {"schema": {"n": "int"}, "compute": {"d": {"type": "int", "sql": "n"}}},
    ):
        assert table(**more).definition().fingerprint != made


def test_the_example_shows_every_key() -> None:
    text = (Path(__file__).parents[2] / "conf" / "logtwin.toml").read_text()
    commented = text[text.index("# [[tables]]") :].partition("\n\n")[0]
    shown = tomllib.loads("\n".join(line.removeprefix("# ") for line in commented.splitlines()))["tables"][0]
    assert set(shown) == {field.alias or name for name, field in TypedTableConfig.model_fields.items()}
