"""Jars where the network fails or two processes ask at once. That Ivy itself works, every test with Spark shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.spark import jars
from pipeline.spark.jars import resolve
from sources.errors import ConfigurationError

# Stands in for Java: called as Ivy, it fails as long as `failures` has a line, and where another one is at work.
JAVA = """#!/bin/bash
cd "$(dirname "$0")"
echo called >> calls
mkdir working || { echo "two at once"; exit 3; }
trap 'rmdir working' EXIT
sleep 0.2
if [ -s failures ]; then sed -i 1d failures; echo "Connection reset"; exit 1; fi
until [ "$1" = -retrieve ]; do shift; done
touch "$(dirname "$2")/some-1.0.jar"
"""


class Ivy:
    def __init__(self, home: Path) -> None:
        self._bin = home / "bin"
        self._bin.mkdir(parents=True)
        (self._bin / "java").write_text(JAVA)
        (self._bin / "java").chmod(0o755)

    def fails(self, times: int) -> None:
        (self._bin / "failures").write_text("once\n" * times)

    @property
    def calls(self) -> int:
        return len((self._bin / "calls").read_text().splitlines())


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ivy:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("LOGTWIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_FIRST_WAIT_S", 0.0)
    return Ivy(tmp_path / "java")


def found() -> list[str]:
    return [path.name for path in resolve("org.some", "some", "1.0").iterdir()]


def left(folder: Path) -> set[str]:
    return {path.name for path in (folder / "cache" / "jars").iterdir()}


def test_a_download_that_fails_is_tried_again_and_a_lasting_failure_quotes_ivy_and_leaves_nothing(
    ivy: Ivy, tmp_path: Path
) -> None:
    ivy.fails(5)
    with pytest.raises(ConfigurationError, match=r"org\.some:some:1\.0") as caught:
        resolve("org.some", "some", "1.0")
    assert "Connection reset" in str(caught.value)
    assert ivy.calls == 5
    assert left(tmp_path) == {".lock"}
    ivy.fails(4)
    assert found() == ["some-1.0.jar"]
    assert ivy.calls == 10


def test_parallel_callers_share_one_download(ivy: Ivy) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert [one.result() for one in [pool.submit(found) for _ in range(4)]] == [["some-1.0.jar"]] * 4
    assert ivy.calls == 1


def test_where_there_is_no_java_nothing_is_tried_again(
    ivy: Ivy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(jars, "_FIRST_WAIT_S", 1000.0)
    with pytest.raises(ConfigurationError, match="there is no Java"):
        resolve("org.some", "some", "1.0")
