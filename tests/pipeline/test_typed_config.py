"""``[[tables]]``: what a typed table may be, and what is said of the others."""

import json
import pickle
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.config.typed_tables import TypedTableConfig
from pipeline.operate.typed_tables import proposed
from sinks.typed.columns import MessagePlace, SeenValues
from sinks.typed.formats.json_fields import UNKNOWN
from sinks.typed.readers import reader
from sinks.typed.source_tables import SourceTable
from sinks.typed.step.report import Report
from sources.errors import ConfigurationError
from sources.offsets import LogId
from tests.pipeline.operator_at_work import run
from tests.sinks.typed.formats.test_protobuf import FILE

ORDERS: dict[str, Any] = {"name": "orders", "from": ["orders"]}
KEYS = {"registry_username": "env:A", "registry_password": "file:/b"}
CHANGES = {"format": "canal", "database": "shop", "table": "orders", "mode": "upsert", "key": ["id"]}
MANY = {"name": "{database}_{table}", "format": "canal", "mode": "upsert"}
FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "offset", "type": ["null", "int"]},
]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}


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
        ({"from": ["kafka/.*/orders"]}, "only of the topic"),
        ({"from": ["orders-("]}, "from: a topic, or a regular expression"),
        ({"from": ["(?P<a>x)"]}, "a plain regular expression"),
        ({"from": ["kafka/prod/orders"], "tags": ["a"]}, "logs and tags only with topics of RocketMQ"),
        (
            {"mode": "upsert"},
            'key with mode = "upsert" or "history", and only with these, found name = \'orders\', from = [',
        ),
        ({"mode": "history"}, "key with mode"),
        ({**CHANGES, "mode": "history", "keep_deleted": True}, 'no keep_deleted with mode = "history"'),
        (
            {
                "mode": "history",
                "key": ["id"],
                "schema": {"id": "int"},
                "compute": {"n": {"type": "int", "sql": "_Valid_To"}},
            },
            "_valid_to is known only later",
        ),
        ({"key": ["id"]}, "key with mode"),
        ({"name": "{database}"}, "name: with {table}"),
        ({"name": "{table}"}, "name: with {table}"),
        ({**MANY, "name": "{schema}-{table}"}, "small letters"),
        ({**MANY, "name": "{topic}_{table}"}, "small letters"),
        ({**MANY, "mode": "append"}, 'mode = "upsert"'),
        ({**MANY, "exclude": ["("]}, "exclude: a name, or a plain"),
        ({**MANY, "format": "debezium", "schema": "http://r"}, "registries have an entry each"),
        ({**CHANGES, "exclude": ["a"]}, "exclude and max_tables only with {table}"),
        ({"keep_deleted": True}, "keep_deleted only with"),
        ({**CHANGES, "max_tables": 5}, "exclude and max_tables only with {table}"),
        ({"deletes": {"op": ["d"]}}, "deletes and tombstones with mode"),
        ({"tombstones": True}, "deletes and tombstones with mode"),
        ({"mode": "upsert", "key": ["id"], "tombstones": True}, "tombstones only with topics of Kafka"),
        ({"mode": "upsert", "key": ["id"], "drop": ["id"]}, "id is a key"),
        ({"mode": "upsert", "key": ["id"], "mask": {"id": "null"}}, "id is a key"),
        ({"mode": "upsert", "key": ["id"], "schema": {"n": "int"}}, "id is a key, and needs a type"),
        (
            {"schema": {"old": "string", "new": "string"}, "rename": {"old": "new"}},
            "two columns cannot be called 'new'",
        ),
        ({"schema": {"id": "string", "ID": "string"}}, "two columns cannot be called 'id'"),
        ({"schema": {"_rest": "string"}}, "two columns cannot be called '_rest'"),
        ({"schema": {"Offset": "string"}}, "two columns cannot be called 'offset'"),
        ({"schema": {"a": "int"}, "compute": {"A": {"type": "int", "sql": "a"}}}, "two columns cannot be called 'a'"),
        ({"schema": {"id": "varchar"}}, "no such type"),
        ({"schema": {"bad name": "string"}}, "rename it"),
        ({"rename": {"id": "bad name"}}, "rename it"),
        ({"format": "text", "schema": {"id": "string"}}, "which has one column"),
        ({"compute": {"day": {"type": "date", "sql": "x"}}}, "compute with a declared schema"),
        ({"schema": {"n": "int"}, "compute": {"n": {"type": "date", "sql": "x"}}}, "cannot be called 'n'"),
        ({"schema": {"n": "int"}, "compute": {"offset": {"type": "int", "sql": "n"}}}, "cannot be called 'offset'"),
        ({"schema": {"n": "int"}, "compute": {"d": {"type": "day", "sql": "n"}}}, "no such type"),
        ({"schema": {"n": "int"}, "compute": {"d": {"type": "json", "sql": "n"}}}, "string or timestamp"),
        ({"format": "xml"}, "'avro', 'protobuf', 'canal', 'debezium' or 'maxwell'"),
        (
            {"database": "shop"},
            "database, table, order, time_zone and keep_deleted only with canal, debezium and maxwell",
        ),
        ({"order": "log"}, "only with canal, debezium and maxwell"),
        ({"format": "canal", "database": "shop", "table": "orders"}, 'mode = "upsert" or "history", and no deletes'),
        ({**CHANGES, "deletes": {"op": ["d"]}}, 'mode = "upsert" or "history", and no deletes'),
        ({**CHANGES, "schema": "http://r"}, 'schema = "infer", or a table of fields, with format = "canal"'),
        ({**CHANGES, "format": "debezium", "schema": "a.avsc"}, "a table of fields, or a registry's URL, with"),
        ({**CHANGES, "table": None}, "database and table with"),
        ({**CHANGES, "database": ""}, "database and table with"),
        ({**CHANGES, "table": "orders_("}, "table: a name, or a plain regular expression"),
        ({**CHANGES, "time_zone": "+8"}, "a name such as Asia/Shanghai"),
        ({**CHANGES, "format": "maxwell", "time_zone": "Asia/Shanghai"}, "time_zone with"),
        ({**CHANGES, "order": "time"}, "'source' or 'log'"),
        ({"schema": "orders.avsc"}, 'with format = "json"'),
        ({"format": "csv"}, "a table of all fields"),
        ({"format": "csv", "schema": "orders.avsc"}, "a table of all fields"),
        ({"format": "csv", "schema": {"a": "json"}}, "none of type json"),
        ({"format": "csv", "schema": {"a": "array<int>"}}, "none of type json or nested"),
        ({"schema": {"a": "array<int"}}, "a column has no such type; expected >, at character 10, found array<int"),
        ({"schema": {"n": "int"}, "compute": {"d": {"type": "array<int>", "sql": "n"}}}, "string or timestamp"),
        ({"schema": {"a": "struct<b:int>"}, "mode": "upsert", "key": ["a"]}, "a is a key, which has no struct"),
        ({"schema": {"a": "struct<b:int>"}, "mask": {"a.c": "hash"}}, "a.c cannot be hidden: there is no such part"),
        (
            {"schema": {"a": "map<string,int>"}, "mask": {"a.c": "hash"}},
            "or it is one of a map whose values are no texts",
        ),
        ({"nested": True}, "nested with a schema file or a registry"),
        ({"nested": True, "schema": {"a": "int"}}, "nested with a schema file or a registry"),
        ({"format": "avro"}, "the path of a schema file"),
        ({"format": "protobuf", "schema": {"a": "int"}, "message": "A"}, "the path of a schema file"),
        ({"format": "protobuf", "schema": "orders.binpb"}, "message with"),
        ({"format": "protobuf", "schema": "http://r", "message": "A"}, "message with"),
        ({"format": "avro", "schema": "orders.avsc", "message": "A"}, "message with"),
        ({"separator": ";"}, "separator with"),
        ({"format": "csv", "schema": {"a": "int"}, "separator": "::"}, "one character"),
        ({"format": "csv", "schema": {"a": "int"}, "separator": '"'}, "one character"),
        ({"format": "avro", "schema": "http://r?x=1"}, "http://HOST:PORT"),
        ({"format": "avro", "schema": "http://"}, "http://HOST:PORT"),
        ({"format": "avro", "schema": "http://r:0"}, "http://HOST:PORT"),
        ({"format": "avro", "schema": "http://r:70000"}, "Port out of range"),
        ({"format": "avro", "schema": "http://r/a b"}, "http://HOST:PORT"),
        ({"format": "avro", "schema": "http://r", "registry_username": "env:A"}, "both, or none"),
        ({**KEYS, "format": "avro", "schema": "orders.avsc"}, "the URL of a registry"),
        ({"mask": {"id": "rot13"}}, "'hash', 'null' or 'redact'"),
        ({"max_columns": 0}, "max_columns"),
        ({"schemas": "infer"}, "Did you mean 'schema'"),
        ({"from": []}, ": from is not usable"),
        ({"schema": 5}, ": schema is not usable"),
    ],
)
def test_what_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        table(**more)


def test_schemas_of_debezium_may_be_in_a_registry() -> None:
    how = table(**{**CHANGES, "format": "debezium"}, schema="http://r:8081", **KEYS).definition().reading
    assert (how.registry, str(how.username), how.database, how.needs_order) == ("http://r:8081", "env:A", "shop", True)


@pytest.mark.parametrize(
    "more", [{"schema": "https://me:hunter2@r:8081"}, {"schema": "http://r", **KEYS, "registry_password": "hunter2"}]
)
def test_a_secret_is_refused_and_not_repeated(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        table(format="avro", **more)
    assert "hunter2" not in str(caught.value)


def test_change_events_have_columns_of_their_own() -> None:
    schema = {"id": "bigint", "at": "timestamp"}
    made = [table(**{**CHANGES, "format": one, "schema": schema}) for one in ("canal", "debezium", "maxwell")]
    columns = ["_deleted", "_source_order", "id", "at"]
    for one, names in zip(made, (columns[:1], columns[:2], columns[:1]), strict=True):
        assert [column.name for column in one.definition().declared()] == [*names, "id", "at"]
    history = {"mode": "history"}
    source = SourceTable("shop", "orders", "", ("orders",), ("id",))
    for of_one in (table(**{**CHANGES, **history}), table(**{**MANY, **history}).of(source)):
        assert [column.name for column in of_one.definition().declared()] == ["_deleted", "_valid_from", "_valid_to"]


def test_types_with_parts_are_written_in_one_way() -> None:
    """In any other way they would be another definition. A part that is hidden is text, or gone."""
    how = {"mask": {"a.card": "hash", "a.b.c": "null"}, "drop": ["a.note", "free.any"]}
    made = [
        table(schema={"a": one, "free": "json", "n": "decimal(5, 2)"}, **how).definition()
        for one in (
            "array<struct<card:bigint,note:string,b:struct<c:int>>>",
            "ARRAY<STRUCT<card: BIGINT, note: STRING, b STRUCT<c: INT>>>",
        )
    ]
    assert made[0].fingerprint == made[1].fingerprint
    assert [one.kind for one in made[0].declared()] == [
        "array<struct<card:string,b:struct<c:string>>>", "json", "decimal(5, 2)"
    ]  # fmt: skip


def test_a_schema_file_gives_parts_if_asked(tmp_path: Path) -> None:
    tags = {"name": "tags", "type": {"type": "map", "values": "string"}}
    schema = avsc(tmp_path, fields=[tags, {"name": "id", "type": "string"}])
    assert table(format="avro", schema=schema).definition().schema == {"tags": "json", "id": "string"}
    nested = table(format="avro", schema=schema, nested=True, mask={"tags.secret": "hash"})
    assert nested.definition().schema == {"tags": "map<string,string>", "id": "string"}
    with pytest.raises(ConfigurationError, match=re.escape("expected some of tags, id, found id.secret")):
        table(format="avro", schema=schema, nested=True, mask={"id.secret": "hash"}).definition()
    with pytest.raises(ConfigurationError, match="a key has no parts"):
        table(format="avro", schema=schema, nested=True, mode="upsert", key=["tags"]).definition()


def avsc(folder: Path, **more: Any) -> str:
    path = folder / "order.avsc"
    path.write_text(json.dumps({**ORDER, **more}))
    return str(path)


def test_a_schema_file_declares_the_columns(tmp_path: Path) -> None:
    found = table(format="avro", schema=avsc(tmp_path), rename={"id": "order_id"}, mask={"at": "hash"}).definition()
    assert [(one.name, one.field, one.kind, one.mask) for one in found.declared()] == [
        ("order_id", "id", "string", None),
        ("at", "at", "timestamp", "hash"),
        ("offset_", "offset", "int", None),
    ]
    assert [*reader(found.reading)(b"\x02a\x00\x00")] == ["id", "at", "offset"]
    assert pickle.loads(pickle.dumps(found.reading)) == found.reading  # noqa: S301


def test_a_descriptor_set_declares_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "order.binpb"
    path.write_bytes(FileDescriptorSet(file=[FILE]).SerializeToString())
    found = table(format="protobuf", schema=str(path), message="shop.Other").definition()
    assert found.dropped == ()
    hidden = table(format="protobuf", schema=str(path), message="shop.Other", mask={"id": "hash"}).definition()
    assert hidden.dropped == (UNKNOWN,)
    assert [(one.name, one.kind) for one in found.declared()] == [("id", "int")]
    with pytest.raises(ConfigurationError, match="no such message"):
        table(format="protobuf", schema=str(path), message="Order").definition()


def test_another_definition_is_told_from_the_same(tmp_path: Path) -> None:
    made = [
        table().definition(),
        table(tags=["a"]).definition(),
        table(schema={"id": "int"}).definition(),
        table(drop=["x"]).definition(),
        table(mask={"x": "hash"}).definition(),
        table(where="true").definition(),
        table(schema={"n": "int"}, compute={"d": {"type": "int", "sql": "n"}}).definition(),
        table(format="avro", schema=avsc(tmp_path)).definition(),
        table(format="avro", schema=avsc(tmp_path, doc="more")).definition(),
        registered := table(format="avro", schema="http://r").definition(),
        table(format="avro", schema="http://s").definition(),
        table(format="csv", schema={"a": "int", "b": "int"}).definition(),
        table(format="csv", schema={"b": "int", "a": "int"}).definition(),
        table(format="csv", schema={"a": "int", "b": "int"}, separator=";").definition(),
        table(**CHANGES).definition(),
        table(**{**CHANGES, "mode": "history"}).definition(),
        table(**{**CHANGES, "table": "orders_[0-9]+"}).definition(),
        table(**{**CHANGES, "order": "source"}).definition(),
        table(**{**CHANGES, "time_zone": "Asia/Shanghai"}).definition(),
    ]
    assert len({one.fingerprint for one in made}) == len(made)
    assert table(on_bad="stop", max_columns=7).definition().fingerprint == made[0].fingerprint
    assert table(format="avro", schema="http://r", **KEYS).definition().fingerprint == registered.fingerprint
    assert registered.declared() == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"mask": {"card": "hash"}}, "no such field"),  # a mask that masks nothing is none
        ({"drop": ["card"]}, "no such field"),
        ({"rename": {"card": "b"}}, "no such field"),
        ({"mode": "upsert", "key": ["card"]}, "no such field"),
        ({"rename": {"id": "AT"}}, "two columns cannot have the same name"),
        ({"rename": {"id": "_rest"}}, "two columns cannot have the same name"),
    ],
)
def test_keys_that_a_schema_file_knows_nothing_of(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        table(format="avro", schema=avsc(tmp_path), **more).definition()


def test_what_add_writes_is_what_it_was_given(tmp_path: Path) -> None:
    how = {"format": "avro", "schema": avsc(tmp_path)}
    text = proposed(None, parse({}, where="test"), ["kafka/prod/orders-new"], None, how)
    (made,) = parse(tomllib.loads(text), where="test").tables
    assert made == table(name="orders_new", **{"from": ["kafka/prod/orders-new"], **how})
    assert text.splitlines()[-3:] == ["# id: string", "# at: timestamp", "# offset_: int"]


def test_what_add_writes_of_change_events() -> None:
    for how in (CHANGES, {**CHANGES, "mode": "history"}):
        text = proposed(None, parse({}, where="test"), ["orders"], None, how)
        (made,) = parse(tomllib.loads(text), where="test").tables
        assert made == table(**how)
        assert text.splitlines()[-1] == 'schema = "infer"'


def test_what_add_declares_takes_keys_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever appends to it, and adds a key at the end, makes no column of it."""
    place = MessagePlace("rocketmq/a", 0, 0)
    kinds = {"id": ["bigint"], "due date": ["string"], "at": ["timestamp"], "by": ["timestamp", "string"]}
    seen = {name: SeenValues(name, dict.fromkeys(several, place)) for name, several in kinds.items()}
    monkeypatch.setattr("pipeline.operate.typed_tables._looked", lambda *_: Report(messages=2, rows=2, seen=seen))
    text = proposed(
        cast("SparkSession", object()), parse({}, where="test"), ["orders"], None, {"mode": "upsert", "key": ["id"]}
    )
    (made,) = parse(tomllib.loads(f'{text}\nmask = {{ at = "hash" }}\n'), where="test").tables
    assert (made.mode, made.key, made.mask) == ("upsert", ("id",), {"at": "hash"})
    assert made.schema_ == {"id": "bigint", "at": "timestamp", "by": "string"}
    assert '# without a column, in _rest: "due date"' in text
    assert "JSON" not in text


def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the schema"):
        table(format="avro", schema=str(tmp_path / "none.avsc")).definition()
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="cannot read the schema"):
        table(format="avro", schema=str(tmp_path / "binary")).definition()
    with pytest.raises(ConfigurationError, match="binary: not a descriptor set"):
        table(format="protobuf", schema=str(tmp_path / "binary"), message="a").definition()
    with pytest.raises(ConfigurationError, match="avsc: not an Avro schema"):
        table(format="avro", schema=avsc(tmp_path, type="nothing")).definition()


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
    matching = table(**{"from": ["kafka/prod/orders-.*", "kafka/prod/a.b"]}).definition()
    followed = ("orders-new/3", "orders/3", "old-orders-new/0", "a.b/0", "axb/0")
    assert [matching.follows(LogId.parse(f"kafka/prod/{one}")) for one in followed] == [True, False, False, True, False]
    assert not matching.follows(LogId.parse("kafka/prod-2/orders-new/3"))


def test_without_a_typed_table_check_says_so_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pipeline.spark.session.build_session")
    file = tmp_path / "job.toml"
    file.write_text(f'warehouse = "{tmp_path}/lake"\n')
    code, said, _ = run(capsys, "tables", "check", "--config", file)
    assert (code, "tables add --from TOPIC" in said) == (0, True)
