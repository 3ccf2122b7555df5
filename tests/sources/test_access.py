"""Addresses as an operator writes them."""

from pathlib import Path

import pytest

from sources.access.address import Address
from sources.access.security import Secret
from sources.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:10912", "127.0.0.1", 10912),
        ("broker-a.example:1", "broker-a.example", 1),
        ("[::1]:10911", "::1", 10911),
        ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert Address.parse(f" {text} ") == Address(host, port)
    assert str(Address(host, port)) == text


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "10912", ":10912", "a:", "a:b", "a:0", "a:65536", "a:-1", "::1:10911", "a b:1", "http://a:1"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """MS-12."""
    with pytest.raises(
        ConfigurationError, match=r"expected host:port, with a port from 1 to 65535, found .*127\.0\.0\.1:10912"
    ) as caught:
        Address.parse(text)
    assert caught.value.found == repr(text)


# where secrets are found, and that they are told to nobody


HIDDEN = "hunter2-ä"


def test_a_secret_is_read_from_the_environment_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("env:KAFKA_PASSWORD")
    monkeypatch.setenv("KAFKA_PASSWORD", "old")
    assert secret.reveal() == "old"
    monkeypatch.setenv("KAFKA_PASSWORD", HIDDEN)
    assert secret.reveal() == HIDDEN


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_a_file_without_the_end_of_its_line(tmp_path: Path, ending: str) -> None:
    file = tmp_path / "a:b"
    file.write_bytes(f" {HIDDEN} {ending}".encode())
    assert Secret(f"file:{file}").reveal() == f" {HIDDEN} "


def test_a_secret_that_is_not_there_is_missed_by_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NONE", raising=False)
    (tmp_path / "empty").write_text("\n")
    for reference in ("env:EMPTY", "env:NONE", f"file:{tmp_path}/empty", f"file:{tmp_path}/none", f"file:{tmp_path}"):
        with pytest.raises(ConfigurationError) as caught:
            Secret(reference).reveal()
        assert reference in str(caught.value)


def test_of_a_secret_that_is_no_text_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_bytes(HIDDEN.encode() + b"\xff")
    monkeypatch.setenv("KAFKA_PASSWORD", HIDDEN + "\udcff")
    for reference in (f"file:{file}", "env:KAFKA_PASSWORD"):
        with pytest.raises(ConfigurationError, match="UTF-8") as caught:
            Secret(reference).reveal()
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        assert HIDDEN not in str(caught.value)


@pytest.mark.parametrize("written", [HIDDEN, "", "env:", "file:", f"vault:{HIDDEN}", f"ENV:{HIDDEN}"])
def test_a_secret_that_is_written_out_is_refused_without_repeating_it(written: str) -> None:
    with pytest.raises(ConfigurationError, match="env:NAME or file:PATH") as caught:
        Secret(written)
    assert "hunter2" not in str(caught.value)
