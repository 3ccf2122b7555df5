"""The archive of classes that one JVM leaves for the next ones."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from pipeline.spark.class_archive import archive_options
from pipeline.spark.jars import java

JAVA = java()


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
