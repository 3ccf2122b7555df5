"""Jars where the network fails or two processes ask at once, and the archive of classes that one JVM leaves for the
next. That Ivy itself works, every test with Spark shows.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.spark import jars
from pipeline.spark.jars import archive_options, java, resolve
from sources.errors import ConfigurationError

# Stands in for Java: called as Ivy, it fails as long as `failures` has a line, and where another one is at work.
FAKE_JAVA = """#!/bin/bash
cd "$(dirname "$0")"
echo called >> calls
mkdir working || { echo "two at once"; exit 3; }
trap 'rmdir working' EXIT
sleep 0.2
if [ -s failures ]; then sed -i 1d failures; echo "Connection reset"; exit 1; fi
until [ "$1" = -retrieve ]; do shift; done
touch "$(dirname "$2")/some-1.0.jar"
"""

JAVA = java()


class Ivy:
    def __init__(self, home: Path) -> None:
        self._bin = home / "bin"
        self._bin.mkdir(parents=True)
        (self._bin / "java").write_text(FAKE_JAVA)
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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGTWIN_CACHE", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "classes"


def started(options: str, *more: str) -> str:
    """What a JVM says that does next to nothing."""
    command = [JAVA, *shlex.split(options), *more, "-version"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_jvm_without_one_leaves_one_for_the_next(folder: Path) -> None:
    first = archive_options(JAVA, [], made=True)
    started(first)
    (made,) = folder.glob("*.new")
    second = archive_options(JAVA, [], made=True)
    (taken,) = folder.iterdir()
    assert (taken.suffix, f'-XX:SharedArchiveFile="{taken}"' in second) == (".jsa", True)
    assert not made.exists()
    assert "shared objects file (top)" in started(second, "-Xlog:class+load")


def test_an_unfinished_archive_is_ignored_and_later_deleted(folder: Path) -> None:
    archive = archive_options(JAVA, [], made=True)
    new = Path(shlex.split(archive)[0].partition("=")[2])
    new.write_bytes(bytes(100))
    assert archive_options(JAVA, [], made=True) == archive
    assert new.exists()
    os.utime(new, (0, 0))
    assert archive_options(JAVA, [], made=True) == archive
    assert not new.exists()


def test_one_of_two_that_were_made_at_once_is_taken(folder: Path) -> None:
    new = Path(shlex.split(archive_options(JAVA, [], made=True))[0].partition("=")[2])
    for path in (new, new.with_suffix(".2.new")):
        path.write_bytes(b"head")
    assert "SharedArchiveFile" in archive_options(JAVA, [], made=True)
    assert [path.suffix for path in folder.iterdir()] == [".jsa"]


def test_other_jars_have_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    before = archive_options(JAVA, [jar], made=True)
    jar.write_bytes(b"12")
    assert len({before, archive_options(JAVA, [jar], made=True), archive_options(JAVA, [], made=True)}) == 3


def test_beside_a_chosen_archive_or_without_a_cache_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as chosen:
        chosen.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/mine")
        assert archive_options(JAVA, [], made=True) == ""
    folder.parent.touch()
    assert archive_options(JAVA, [], made=True) == ""
