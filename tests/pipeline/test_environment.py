"""Keys of the configuration from the environment."""

from pathlib import Path

import pytest

from pipeline.config.configuration import Config, load
from sources.errors import ConfigurationError

FILE = """
warehouse = "/data/of-the-file"
[metrics]
port = 1
host = "0.0.0.0"
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(FILE)
    monkeypatch.setenv("LOGTWIN_CACHE", "x")
    return path


def test_the_environment_wins_over_the_file_key_by_key(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, switches and words as the file would have them; without a file they are all there is."""
    for name, value in {
        "LOGTWIN_WAREHOUSE": "s3://lake/twin",
        "LOGTWIN_METRICS__PORT": "9464",
        "LOGTWIN_METADATA__ENABLED": "false",
        "LOGTWIN_STORAGE__SECRET_KEY": "env:SECRET",
        "LOGTWIN_STORAGE__ACCESS_KEY": "file:/run/secrets/key",
        "LOGTWIN_CATALOG__SCHEMA": "lake",
        "LOGTWIN_MAINTAIN__EVERY_S": "",  # set to nothing: not set
    }.items():
        monkeypatch.setenv(name, value)
    found = load(loaded)
    assert (found.warehouse, found.metrics.port, found.metrics.host) == ("s3://lake/twin", 9464, "0.0.0.0")  # noqa: S104
    assert (found.metadata.enabled, found.catalog.schema_, str(found.storage.secret_key)) == (
        False,
        "lake",
        "env:SECRET",
    )
    assert found.maintain == Config().maintain
    assert load(None).metrics.port == 9464


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LOGTWIN_METRICS__PORT", "many", ["job.toml [metrics] with LOGTWIN_METRICS__PORT", "port", "a whole number"]),
        ("LOGTWIN_TRIGGER_INTERVAL_S", "0", ["LOGTWIN_TRIGGER_INTERVAL_S", "greater than 0", "'0'"]),
        ("LOGTWIN_WAREHOUSE", "s3n://lake", ["LOGTWIN_WAREHOUSE", "warehouse is not a place"]),
        ("LOGTWIN_STORAGE__ACCESS_KEY", "hunter2", ["LOGTWIN_STORAGE__ACCESS_KEY", "env:NAME or file:PATH"]),
        ("LOGTWIN_METRICS__PRT", "1", ["LOGTWIN_METRICS__PRT", "Did you mean LOGTWIN_METRICS__PORT?"]),
        ("LOGTWIN_METRICS_PORT", "1", ["LOGTWIN_METRICS_PORT", "Did you mean LOGTWIN_METRICS__PORT?"]),
        ("LOGTWIN_WAREHOSE", "/x", ["LOGTWIN_WAREHOSE", "Did you mean LOGTWIN_WAREHOUSE?"]),
        ("LOGTWIN_LOGS__ID", "rocketmq/a", ["LOGTWIN_LOGS__ID", "is no key"]),
    ],
)
def test_a_mistake_names_the_variable(
    loaded: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: list[str]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        load(loaded)
    for word in words:
        assert word in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_what_kubernetes_sets_for_services_of_our_name_is_no_key(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = load(loaded)
    for service in ("LOGTWIN", "LOGTWIN_METRICS"):
        monkeypatch.setenv(f"{service}_PORT", "tcp://10.0.0.7:9464")
        monkeypatch.setenv(f"{service}_SERVICE_HOST", "10.0.0.7")
        monkeypatch.setenv(f"{service}_SERVICE_PORT", "9464")
        monkeypatch.setenv(f"{service}_PORT_9464_TCP_ADDR", "10.0.0.7")
        monkeypatch.setenv(f"{service}_PORT_9464_TCP_PORT", "9464")
    assert load(loaded) == without
