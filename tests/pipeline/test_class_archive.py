"""The archive of classes that `logtwin warm` writes and all other sessions only use."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.jars import JarsConfig
from pipeline.spark.class_archive import archive_file, archive_options
from pipeline.spark.jars import java
from sources.errors import ConfigurationError
from tests.pipeline.running import own_cache
from tests.resident import PROJECT

JAVA = java()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An own one, with the jars of all, and no options of whoever started the test."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LOGTWIN_JARS"):
        monkeypatch.delenv(name, raising=False)
    cache = own_cache(tmp_path)
    monkeypatch.setenv("LOGTWIN_CACHE", str(cache))
    return cache


def started(options: str, *more: str) -> str:
    """What a JVM says that does next to nothing."""
    command = [JAVA, *shlex.split(options), *more, "-version"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_session_writes_none_and_uses_the_one_that_there_is(cache: Path) -> None:
    archive = archive_file(JarsConfig(), JAVA, [])
    assert archive.parent == cache / "classes"
    assert archive_options(archive, None) == ""
    archive.parent.mkdir(parents=True)
    started(archive_options(archive, archive))
    assert "shared objects file (top)" in started(archive_options(archive, None), "-Xlog:class+load")


def test_other_jars_have_another_archive_and_a_folder_of_jars_has_its_own(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    os.utime(jar, ns=(0, 1_500_000_000))
    before = archive_file(JarsConfig(), JAVA, [jar])
    os.utime(jar, ns=(0, 1_000_000_000))  # as an image has it
    assert archive_file(JarsConfig(), JAVA, [jar]) == before
    jar.write_bytes(b"12")
    assert len({before, archive_file(JarsConfig(), JAVA, [jar]), archive_file(JarsConfig(), JAVA, [])}) == 3
    beside = archive_file(JarsConfig(folder=str(tmp_path)), JAVA, [jar])
    assert beside.parent == tmp_path / "classes"


@pytest.mark.parametrize("to", [None, Path("new")])
def test_beside_a_chosen_archive_there_is_none(to: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_file(JarsConfig(), JAVA, [])
    archive.parent.mkdir(parents=True)
    archive.touch()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/mine")
    assert archive_options(archive, to) == ""


@pytest.mark.spark
@pytest.mark.nightly
def test_warm_writes_it_once_and_questions_do_not(cache: Path, tmp_path: Path) -> None:
    """In processes of their own. A JVM that may not write it is said."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}

    def logtwin(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pipeline", *words]
        return subprocess.run(
            command, env=environment | more, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
        )

    assert logtwin("tables", "show", "messages").returncode == 0
    assert not (cache / "classes").exists()
    refused = logtwin("warm", SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=/mine")
    assert refused.returncode == ConfigurationError.exit_code, refused.stderr
    assert "there is no archive of classes" in refused.stderr
    first = logtwin("warm")
    assert first.returncode == 0, first.stderr
    (archive,) = (cache / "classes").iterdir()
    written = archive.stat()
    assert logtwin("warm").stdout == f"{archive}: {written.st_size / 1e6:,.0f} MB\n"
    shown = logtwin("tables", "show", "messages", SPARK_SUBMIT_OPTS="-Xlog:class+load:file=loaded")
    assert shown.returncode == 0, shown.stderr
    assert "DeltaSparkSessionExtension source: shared objects file (top)" in (tmp_path / "loaded").read_text()
    assert archive.stat() == written
