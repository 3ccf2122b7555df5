from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from pipeline.config import (
    Config,
    EmbeddedMasterConfig,
    MaintainConfig,
    MetadataConfig,
    MetricsConfig,
    WorkloadConfig,
    load,
    parse,
)
from sources.errors import ConfigurationError
from sources.options import ReadOptions

REFERENCE = Path(__file__).parents[2] / "conf" / "logtwin.toml"


def test_the_reference_file_shows_every_key_with_its_default() -> None:
    """MS-14."""
    text = REFERENCE.read_text()
    given = tomllib.loads(text)
    shown: list[tuple[type[BaseModel], dict[str, object]]] = [
        (ReadOptions, given["logs"][0]),
        (MetadataConfig, given["metadata"]),
        (MetricsConfig, given["metrics"]),
        (MaintainConfig, given["maintain"]),
        (EmbeddedMasterConfig, given["embedded_master"]),
        (WorkloadConfig, given["workload"]),
        (Config, {key: value for key, value in given.items() if not isinstance(value, dict | list)}),
    ]
    own = {"id", "master", "remoting"}
    for model, values in shown:
        for name, field in model.model_fields.items():
            assert f"{name} = " in text or f"[{name}]" in text or f"[[{name}]]" in text, name
            if name in values and name not in own:
                assert values[name] == field.default, name


def test_every_key_has_a_reason() -> None:
    for model in (
        Config,
        ReadOptions,
        MetadataConfig,
        MetricsConfig,
        MaintainConfig,
        EmbeddedMasterConfig,
        WorkloadConfig,
    ):
        for name, field in model.model_fields.items():
            assert field.description or issubclass(type(field.default), BaseModel), name


def test_the_reference_file_loads() -> None:
    config = load(REFERENCE)
    assert [log.id for log in config.logs] == ["rocketmq/broker-a"]
    assert config.checkpoint_root == "./warehouse/_checkpoints"


def test_spark_properties_may_be_written_nested_or_quoted() -> None:
    nested = tomllib.loads(
        '[spark]\nspark.executor.memory = "1g"\nsql.shuffle.partitions = 3\n"spark.ui.enabled" = true'
    )
    assert parse(nested, where="x").spark == {
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "true",
    }


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
        ("[workload]\nrate = 5", ["[workload]", "'rate'", "rate_per_s"]),
        ("workload = 5", ["workload", "a table [workload]"]),
        ("x = ", ["is not TOML"]),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    for word in (*words, "job.toml"):
        assert word in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        load(Path("nowhere.toml"))


def test_a_job_without_logs_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing to replicate"):
        parse({}, where="x").with_logs("x")
