"""``[storage]``: what is not said comes from the environment, secrets stay where they are, and it travels as text."""

from pathlib import Path

import pytest

from sinks.storage import settings as module
from sinks.storage.settings import VARIABLE, Storage, storage, use
from sources.errors import ConfigurationError

AMAZONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "{}")
    for name in AMAZONS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("said", "variables", "url"),
    [
        (None, {}, None),
        ("http://minio:9000/", {}, "http://minio:9000"),
        (None, {"AWS_ENDPOINT_URL": "http://a:1/"}, "http://a:1"),
        (None, {"AWS_ENDPOINT_URL": "http://a:1", "AWS_ENDPOINT_URL_S3": "http://b:2"}, "http://b:2"),
        ("http://minio:9000", {"AWS_ENDPOINT_URL_S3": "http://b:2"}, "http://minio:9000"),
        (None, {"AWS_ENDPOINT_URL": ""}, None),
    ],
)
def test_the_endpoint(
    monkeypatch: pytest.MonkeyPatch, said: str | None, variables: dict[str, str], url: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    chosen = Storage(endpoint=said)
    assert chosen.url == url
    assert chosen.is_path_style == (url is not None)
    assert Storage(endpoint=said, path_style=url is None).is_path_style == (url is None)


@pytest.mark.parametrize(
    ("said", "variables", "region"),
    [
        ({"region": "eu-west-1"}, {"AWS_REGION": "eu-north-1"}, "eu-west-1"),
        ({}, {"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "us-west-2"}, "eu-north-1"),
        ({}, {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ({"endpoint": "http://minio:9000"}, {}, "us-east-1"),
        ({}, {}, "of lake"),
    ],
)
def test_the_region(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], variables: dict[str, str], region: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "_asked_region", lambda bucket: f"of {bucket}")
    assert Storage.model_validate(said).region_of("lake") == region


def test_keys_are_read_where_they_are_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("S3_USER", "somebody")
    secret, token = tmp_path / "secret", tmp_path / "token"
    secret.write_text("first\n")
    token.write_text("t1")
    named = {"access_key": "env:S3_USER", "secret_key": f"file:{secret}", "session_token": f"file:{token}"}
    chosen = Storage.model_validate(named)
    assert chosen.keys() == {"access_key": "somebody", "secret_key": "first", "session_token": "t1"}
    secret.write_text("second\n")
    token.write_text("t2")
    assert chosen.keys() == {"access_key": "somebody", "secret_key": "second", "session_token": "t2"}
    token.unlink()
    with pytest.raises(ConfigurationError, match=f"cannot read the secret in file:{token}"):
        chosen.keys()
    assert Storage().keys() == {}


def test_renewed_keys_are_another_file_system_and_the_same_ones_are_not(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("one")
    place = f"file:{key}"
    named = {"endpoint": "http://127.0.0.1:1", "access_key": place, "secret_key": place}
    chosen = Storage.model_validate(named)
    (first, inside), (again, _) = chosen.open("s3a", "lake"), chosen.open("s3", "lake")
    key.write_text("two")
    renewed, _ = chosen.open("s3a", "lake")
    assert inside == "lake"
    assert first is again
    assert renewed is not first


def test_it_travels_as_text_with_the_places_of_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_USER", "THE-KEY-ITSELF")
    given = {
        "endpoint": "http://minio:9000", "region": "x", "path_style": False, "access_key": "env:S3_USER",
        "secret_key": "env:S3_USER", "session_token": "env:S3_USER", "account_key": "env:S3_USER",
        "single_writer": True, "patience_s": 3.5,
    }  # fmt: skip
    chosen = Storage.model_validate(given)
    assert set(given) == set(Storage.model_fields)
    use(chosen)
    assert storage() == chosen
    assert "env:S3_USER" in chosen.as_text()
    assert not [text for text in (chosen.as_text(), repr(chosen), str(chosen)) if "THE-KEY-ITSELF" in text]
    monkeypatch.delenv(VARIABLE)  # a process that nobody has told has the defaults
    assert storage() == Storage()
