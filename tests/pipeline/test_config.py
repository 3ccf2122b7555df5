import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pipeline.config.configuration import (
    NO_KEYS,
    CatalogConfig,
    Config,
    EmbeddedMasterConfig,
    MaintainConfig,
    MetadataConfig,
    MetricsConfig,
    WorkloadConfig,
    load,
    parse,
)
from pipeline.config.jars import JarsConfig
from pipeline.config.patterns import NOT_IN_A_TABLE, TABLE_KEYS
from pipeline.config.typed_tables import TypedTableConfig
from sinks.storage.settings import Storage
from sources.access.address import Address
from sources.discovery import matched
from sources.errors import ConfigurationError
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.registry import remoting_security

ORDERS = "[[topics]]\nid = 'kafka/east/orders'\nservers = 'b:1'"
REFERENCE = Path(__file__).parents[2] / "conf" / "logtwin.toml"


MODELS: dict[str, type[BaseModel]] = {
    "": Config, "logs": ReadOptions, "storage": Storage, "metadata": MetadataConfig, "metrics": MetricsConfig,
    "catalog": CatalogConfig, "maintain": MaintainConfig, "embedded_master": EmbeddedMasterConfig,
    "workload": WorkloadConfig, "tables": TypedTableConfig, "jars": JarsConfig,
}  # fmt: skip
"""Of each table of the reference file; of what is before the first one."""


def keys_shown() -> dict[str, set[str]]:
    found, table = defaultdict[str, set[str]](set), ""
    for line in REFERENCE.read_text().splitlines():
        if header := re.match(r"(?:# )?\[+(\w+)\]", line):
            table = header[1]
            found[""].add(table)
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            found[table].add(key[1])
    return found


@pytest.mark.parametrize("table", MODELS)
def test_the_reference_file_shows_every_key_with_its_default(table: str) -> None:
    """MS-14."""
    fields = {name.rstrip("_"): field for name, field in MODELS[table].model_fields.items()}
    shown = keys_shown()
    if table == "workload":  # says of these that they are as in [[logs]]
        shown[table] |= {name for name in shown["logs"] & fields.keys() if name.startswith(("access", "sec", "tls"))}
    shown["logs"] -= {"cluster", "include", "exclude"}  # of which a table of a cluster has more
    assert shown[table] == fields.keys() - {*NO_KEYS}
    given = tomllib.loads(REFERENCE.read_text())
    values = given if not table else given["logs"][0] if table == "logs" else given.get(table, {})
    for name, value in values.items():
        if name not in ("id", "master", "remoting") and not isinstance(value, dict | list):
            assert value == fields[name].default, name


def uncommented_topics() -> list[dict[str, object]]:
    lines = REFERENCE.read_text().splitlines()
    start, end = lines.index("# [[topics]]"), next(at for at, line in enumerate(lines) if line.startswith("# Topics,"))
    shown = [line.removeprefix("# ") for line in lines[start:end]]
    tables = tomllib.loads("\n".join(line for line in shown if line.startswith("[[") or " = " in line))
    return list(tables["topics"])


def test_the_reference_file_shows_every_key_of_topics_with_its_default() -> None:
    one, *_ = uncommented_topics()
    fields = ReplicatedTopicOptions.model_fields
    assert one.keys() == fields.keys() - NOT_IN_A_TABLE.keys()
    for name in one.keys() & fields.keys():
        assert fields[name].default in (None, PydanticUndefined, one[name]), name
    assert {key for table in uncommented_topics() for key in table} == set(TABLE_KEYS)


def test_the_reference_file_loads_also_with_its_topics() -> None:
    config = load(REFERENCE)
    assert ([log.id for log in config.logs], config.warehouse) == (["rocketmq/broker-a"], "./warehouse")
    first, *others = uncommented_topics()
    first |= {"security_protocol": "SASL_SSL"}  # the one that has use for every other key
    assert [table.names for table in parse({"topics": [first, *others]}, where="x").topics] == [
        ("kafka/prod/orders",),
        ("kafka/prod/payments", "kafka/prod/refunds"),
        ("kafka/prod/events-.* except events-test-.*",),
    ]


@pytest.mark.parametrize("model", [*MODELS.values(), ReplicatedTopicOptions])
def test_every_key_has_a_reason(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        assert field.description or issubclass(type(field.default), BaseModel), name


def test_spark_properties_may_be_written_nested_or_quoted() -> None:
    text = '[spark]\nspark.executor.memory = "1g"\nsql.shuffle.partitions = 3\n"spark.ui.enabled" = true'
    expected = {"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "3", "spark.ui.enabled": "true"}
    assert parse(tomllib.loads(text), where="x").spark == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("warehous = 'x'", ["warehous", "'warehouse'"]),
        ("trigger_interval_s = 0", ["trigger_interval_s", "greater than 0"]),
        ("logs = 5", ["logs", "[[logs]]"]),
        ("[logs]\nid='rocketmq/a'", ["logs", "[[logs]]"]),
        ("[[logs]]\nmaster='x:1'", ["'id' is missing"]),
        ("[[logs]]\nid='rocketmq/a'\npth='x'", ["pth", "'path'"]),
        ("[[logs]]\nid='rocketmq/a'\n[[logs]]\nid='rocketmq/a'", ["listed twice", "rocketmq/a"]),
        ("[[logs]]\nid='kafka/east/orders'", ["[[logs]]", "kafka/east/orders", "[[topics]]"]),
        ("topics = 5", ["topics", "[[topics]]"]),
        ("[topics]\nid='kafka/east/orders'", ["topics", "[[topics]]"]),
        (f"{ORDERS}\n{ORDERS}", ["listed twice", "kafka/east/orders"]),
        ("[workload]\nrate = 5", ["[workload]", "'rate'", "rate_per_s"]),
        ("workload = 5", ["workload", "a table [workload]"]),
        ("x = ", ["is not TOML"]),
        ("x = " + "9" * 5000, ["is not TOML", "digits"]),
        ("x = " + "[" * 5000, ["is not TOML"]),
        (
            '[[logs]]\nid = "rocketmq/a"\nmaster = "nonsense"\nremoting = "h:1"',
            ["[[logs]]: master is not usable; expected host:port", "found 'nonsense'"],
        ),
        (
            '[[logs]]\nid = "rocketmq/a"\nname_server = "h:1;h:99999"',
            ["[[logs]]: name_server is not usable; expected host:port, with a port from 1 to 65535"],
        ),
        (
            '[[logs]]\nid = "rocketmq/a"\npath = "/x"\n[[logs]]\nid = "rocketmq/b"\npath = 3\nsplit_bytes = -1',
            [
                '[[logs]] number 2: path is not usable; expected text in quotes: "…", found 3.',
                "Also fix: split_bytes, expected greater than 0, found -1.",
            ],
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    for word in (*words, "job.toml"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "endpoint = '127.0.0.1:9000'",
            ["endpoint", "expected http://host:port or https://host:port", "127.0.0.1:9000"],
        ),
        ("endpoint = 'ftp://host'", ["endpoint", "https://host:port"]),
        ("endpoint = 'https://host/bucket'", ["endpoint", "https://host/bucket"]),
        ("endpoint = 'http://host:port'", ["endpoint", "http://host:port"]),
        ("endpoint = 'http://AKIA:SECRET@host:1'", ["endpoint has credentials in it", "secret_key"]),
        ("endpoint = 'http://:SECRET@host:1'", ["endpoint has credentials in it"]),
        ("access_key = 'env:A'", ["expected access_key and secret_key together"]),
        ("secret_key = 'env:A'", ["expected access_key and secret_key together"]),
        ("session_token = 'env:A'", ["session_token beside the access_key"]),
        ("access_key = 'env:A'\nsecret_key = 'SECRET'", ["secret_key is not the place", "env:NAME or file:PATH"]),
        (
            "access_key = 'SECRET'\nsecret_key = 'env:A'",
            ["access_key is not the place", "Never write the secret itself"],
        ),
        ("account_key = 'SECRET=='", ["account_key is not the place"]),
        ("secret = 'SECRET'", ["there is no key 'secret'", "'secret_key'"]),
        ("region_name = 'x'", ["there is no key 'region_name'", "'region'"]),
        ("patience_s = 0", ["patience_s", "greater than 0"]),
    ],
)
def test_mistakes_about_a_store_are_named_and_no_secret_is_repeated(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(tomllib.loads(f"warehouse = 's3://lake/twin'\n[storage]\n{text}"), where="job.toml")
    for word in words:
        assert word in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_warehouse_that_nobody_can_open_and_a_job_without_logs_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^job\.toml: warehouse is not a place.*found s3n://lake/twin"):
        parse({"warehouse": "s3n://lake/twin"}, where="job.toml")
    with pytest.raises(ConfigurationError, match="nothing to replicate"):
        parse({}, where="x").with_logs("x")


BOTH = parse(tomllib.loads(f"[[logs]]\nid = 'rocketmq/a'\npath = 'x'\n{ORDERS}"), where="job.toml")


def test_a_topic_is_chosen_as_a_log_is() -> None:
    topic, log = BOTH.only("kafka/east/orders", "x"), BOTH.only("rocketmq/a", "x")
    assert ([one.id for one in topic.logs], [one.names for one in topic.topics]) == ([], [("kafka/east/orders",)])
    assert ([one.id for one in log.logs], log.topics) == (["rocketmq/a"], ())
    assert BOTH.only(None, "x") is BOTH
    assert BOTH.only("kafka/east/orders/0", "x") == topic  # which partitions there are is in no configuration


@pytest.mark.parametrize(
    "other", ["kafka/west/orders", "kafka/east/orders/0/1", "kafka/west/orders/0", "rocketmq/b", "nonsense"]
)
def test_what_is_not_listed_is_not_chosen(other: str) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no log .* one of rocketmq/a, kafka/east/orders"):
        BOTH.only(other, "x")


def test_a_pattern_means_the_topics_of_its_cluster_that_are_there() -> None:
    text = "[[topics]]\ncluster = 'east'\npattern = 'orders-.*'\nservers = 'b:1'"
    config = parse(tomllib.loads(text), where="job.toml")
    names = ("east/orders-eu", "east/orders-us", "east/old-orders-us", "west/orders-eu")
    existing = [*(LogId("kafka", name) for name in names), LogId("dister", "a")]
    assert list(map(str, matched(config.topics, existing))) == ["kafka/east/orders-eu", "kafka/east/orders-us"]
    assert config.named_topics == ()


CLUSTER = {"cluster": "c1", "name_server": "ns:9876"}


def test_a_cluster_is_a_table_of_logs_whose_other_keys_hold_for_each_log() -> None:
    """As for a log of its own; with controllers these are asked for the masters."""
    keys = {"include": ["broker-.*"], "exclude": [".*-test"], "on_loss": "record", "tls": True}
    keys |= {"access_key": "env:USER", "secret_key": "env:KEY"}
    config = parse({"logs": [{**CLUSTER, **keys}, {"id": "dister/shop", "path": "x"}]}, where="x")
    assert [one.id for one in config.logs] == ["dister/shop"]
    (cluster,) = config.clusters
    assert cluster.names == ("rocketmq/broker-.* except .*-test of cluster c1 at name server ns:9876",)
    log_ids = ["rocketmq/broker-a", "rocketmq/broker-a-test", "rocketmq/a", "dister/broker-a"]
    found = {text: cluster.options_of(LogId.parse(text)) for text in log_ids}
    options = found.pop("rocketmq/broker-a")
    assert set(found.values()) == {None}
    assert options is not None
    assert (options.id, options.name_server, options.on_loss) == ("rocketmq/broker-a", "ns:9876", "record")
    assert cluster.security == remoting_security(options)
    (elected,) = parse({"logs": [{**CLUSTER, "controllers": "c:1"}]}, where="x").clusters
    assert elected.name_servers == (Address("ns", 9876),)
    assert (elected.options.controllers, elected.options.name_server) == ("c:1", None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cluster": "c1"}, ["'name_server' is missing", "lists the brokers"]),
        ({**CLUSTER, "name_server": "ns"}, ["name_server", "host:port"]),
        ({**CLUSTER, "cluster": ""}, ["cluster is not usable", "a name"]),
        ({**CLUSTER, "cluster": ["c1"]}, ["cluster is not usable", "a name"]),
        ({**CLUSTER, "include": "b-.*"}, ["include is not usable", "a list"]),
        ({**CLUSTER, "include": [1]}, ["include is not usable", "a list"]),
        ({**CLUSTER, "exclude": ["("]}, ["exclude is not usable", "regular expression", "'('"]),
        ({**CLUSTER, "id": "rocketmq/a"}, ["id cannot be given with cluster", "of its own"]),
        ({**CLUSTER, "master": "a:1"}, ["master cannot be given with cluster", "of its own"]),
        ({**CLUSTER, "peers": "x"}, ["peers cannot be given with cluster", "Remove it"]),
        ({**CLUSTER, "inclde": []}, ["no key 'inclde'", "'include'"]),
        ({**CLUSTER, "split_bytes": 0}, ["split_bytes", "greater than 0"]),
        ({**CLUSTER, "tls_ca_file": "x"}, ["tls_ca_file has no effect without tls"]),
        ({**CLUSTER, "access_key": "env:A"}, ["secret_key"]),
    ],
)
def test_mistakes_about_a_cluster_name_the_table_and_the_key(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({"logs": [{"id": "dister/shop", "path": "x"}, given]}, where="job.toml")
    for word in (*words, "job.toml [[logs]] number 2"):
        assert word in str(caught.value)


def test_clusters_alone_are_worth_a_job() -> None:
    config = parse({"logs": [CLUSTER]}, where="x")
    assert config.only(None, "x") is config
    assert config.has_patterns
    with pytest.raises(ConfigurationError, match="no key 'clusters'"):
        parse({"clusters": [CLUSTER]}, where="x")


def test_a_log_of_a_cluster_is_chosen_without_asking_where_one_entry_alone_matches() -> None:
    config = parse({"logs": [{**CLUSTER, "on_loss": "record"}, {"id": "rocketmq/a", "path": "x"}]}, where="x")
    assert [(one.id, one.on_loss) for one in config.only("rocketmq/b", "x").logs] == [("rocketmq/b", "record")]
    assert [(one.id, one.path) for one in config.only("rocketmq/a", "x").logs] == [("rocketmq/a", "x")]
    assert not config.only("rocketmq/b", "x").has_patterns
    other = {**CLUSTER, "cluster": "c2", "exclude": ["x"]}
    both = parse({"logs": [CLUSTER, other]}, where="x")
    assert [one.pattern.include for one in both.only("rocketmq/b.c", "x").clusters] == [(r"b\.c",)] * 2
    assert [one.id for one in both.only("rocketmq/x", "x").logs] == ["rocketmq/x"]


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes('warehouse = "Lagerhäuser"'.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"job\.toml is not TOML; found 'utf-8' codec"):
        load(path)


WRONG: list[Any] = [-1, 0, 1.5, "", "x", True, [], ["x"], {}, {"x": 1}, 70_000, 2**70, float("nan"), None]
PYDANTICS = re.compile(
    r"Input should|Value error|valid (integer|string|boolean|number)|pydantic|unable to|type=|\bint\b|\bstr\b"
    r"|constrained|literal\["
)
NEEDED: dict[str, dict[str, Any]] = {
    "logs": {"id": "rocketmq/a"}, "topics": {"id": "kafka/c/t", "servers": "h:9092"},
    "tables": {"name": "t", "from": ["t"], "schema": "infer"},
}  # fmt: skip


@pytest.mark.parametrize("name", [*NEEDED, "metadata", "metrics", "maintain", "embedded_master", "workload"])
def test_no_message_is_pydantics(name: str) -> None:
    """Whatever is wrong at whichever key: the operator reads the file's own keys, and what belongs there."""
    model = ReplicatedTopicOptions if name == "topics" else MODELS[name]
    told = 0
    for key in (field.rstrip("_") for field in model.model_fields):
        for value in WRONG:
            table = {**NEEDED.get(name, {}), key: value}
            try:
                parse({name: [table] if name in NEEDED else table}, where="job.toml")
            except ConfigurationError as error:
                told += 1
                assert not PYDANTICS.search(str(error)), (key, value, str(error))
                assert "another value" not in str(error), (key, value, str(error))
    assert told > len(model.model_fields)
