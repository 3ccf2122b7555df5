"""Where secrets are found, and that they are told to nobody."""

from pathlib import Path

import pytest

from sources.access.security import Secret
from sources.errors import ConfigurationError

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
