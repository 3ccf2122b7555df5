"""The archive of classes that `logtwin warm` writes, and all other sessions only use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.jars import JarsConfig
from pipeline.spark.jars import java
from pipeline.spark.jvm import archive_file, archive_options
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


def test_a_session_writes_none_and_uses_only_one_that_fits(cache: Path, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    os.utime(jar, ns=(0, 1_500_000_000))
    archive = archive_file(JarsConfig(), JAVA, [jar])
    assert (archive.parent, archive_options(archive, None)) == (cache / "classes", "")
    archive.parent.mkdir()
    archive.touch()
    os.utime(jar, ns=(0, 1_000_000_000))  # as an image has it
    assert str(archive) in archive_options(archive_file(JarsConfig(), JAVA, [jar]), None)
    jar.write_bytes(b"12")
    others = [archive_file(given, JAVA, [jar]) for given in (JarsConfig(), JarsConfig(folder=str(tmp_path)))]
    assert [archive_options(other, None) for other in others] == ["", ""]
    assert others[1].parent == tmp_path / "classes"


@pytest.mark.spark
@pytest.mark.nightly
def test_warm_writes_it_once_and_questions_do_not(cache: Path, tmp_path: Path) -> None:
    """In processes of their own. If the user has chosen another one, it says that there is none."""

    def logtwin(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command, environment = [sys.executable, "-m", "pipeline", *words], os.environ | {"PYTHONPATH": str(PROJECT)}
        return subprocess.run(
            command, env=environment | more, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert logtwin("tables", "show", "messages").returncode == 0
    assert not (cache / "classes").exists()
    refused = logtwin("warm", SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=/mine")
    assert refused.returncode == ConfigurationError.exit_code, refused.stderr
    assert "there is no archive of classes" in refused.stderr
    first = logtwin("warm")
    assert first.returncode == 0, first.stderr
    (archive,) = (cache / "classes").iterdir()
    assert logtwin("warm").stdout == first.stdout == f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB\n"
    shown = logtwin("tables", "show", "messages", SPARK_SUBMIT_OPTS="-Xlog:class+load:file=loaded")
    assert shown.returncode == 0, shown.stderr
    assert "DeltaSparkSessionExtension source: shared objects file (top)" in (tmp_path / "loaded").read_text()
