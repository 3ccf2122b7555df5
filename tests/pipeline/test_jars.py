"""Jars: out of a folder that `logtwin jars` has written, or downloaded, where the network fails or two ask at once.

That Ivy itself works every test with Spark shows; that nothing else is needed, `test_without_network.py`.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.config.configuration import parse
from pipeline.config.jars import JarsConfig
from pipeline.spark import jars
from pipeline.spark.jars import LIST, JarSet, jars_of, resolve, write_jars
from sources.errors import ConfigurationError
from tests.patience import eventually, wait_until
from tests.pipeline.operator_at_work import run

# Stands in for Java: called as Ivy, it fails as long as `failures` has a line, and where another one is at work.
FAKE_JAVA = """#!/bin/bash
cd "$(dirname "$0")"
echo "$@" >> calls
mkdir working || { echo "two at once"; exit 3; }
trap 'rmdir working' EXIT
sleep 0.2
[ -e slow ] && touch begun && sleep 3 && touch survived
if [ -s failures ]; then sed -i 1d failures; echo "Connection reset"; exit 1; fi
until [ "$1" = -retrieve ]; do shift; done
for name in some-1.0 other-2.0 commons-lang3-3.1; do echo $name > "$(dirname "$2")/$name.jar"; done
"""
SOME = JarSet.of("org.some", "some", "1.0")


class Ivy:
    def __init__(self, home: Path) -> None:
        self._bin = home / "bin"
        self._bin.mkdir(parents=True)
        (self._bin / "java").write_text(FAKE_JAVA)
        (self._bin / "java").chmod(0o755)

    def fails(self, times: int) -> None:
        (self._bin / "failures").write_text("once\n" * times)

    @property
    def calls(self) -> list[str]:
        file = self._bin / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ivy:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("LOGTWIN_CACHE", str(tmp_path / "cache"))
    for name in ("LOGTWIN_JARS", "LOGTWIN_IVY_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jars, "_FIRST_WAIT_S", 0.0)
    return Ivy(tmp_path / "java")


def found() -> list[str]:
    return sorted(path.name for path in resolve("org.some", "some", "1.0").iterdir())


ALL = ["commons-lang3-3.1.jar", "other-2.0.jar", "some-1.0.jar"]


@pytest.mark.job
def test_a_download_that_fails_is_tried_again_and_a_lasting_failure_quotes_ivy_and_leaves_nothing(
    ivy: Ivy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bare, pytest.raises(ConfigurationError, match="there is no Java"):
        bare.setenv("JAVA_HOME", str(tmp_path))
        resolve("org.some", "some", "1.0")
    ivy.fails(5)
    with pytest.raises(ConfigurationError, match=r"org\.some:some:1\.0") as caught:
        resolve("org.some", "some", "1.0")
    for part in ("Connection reset", "Maven Central", "[jars] ivy_settings", "[jars] folder"):
        assert part in str(caught.value)
    assert len(ivy.calls) == 5
    assert {path.name for path in (tmp_path / "cache" / "jars").iterdir()} == {".lock"}
    ivy.fails(4)
    assert found() == ALL
    assert len(ivy.calls) == 10


def test_parallel_callers_share_one_download(ivy: Ivy) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert [one.result() for one in [pool.submit(found) for _ in range(4)]] == [ALL] * 4
    assert len(ivy.calls) == 1


@pytest.mark.job
def test_a_download_ends_with_who_began_it(ivy: Ivy, tmp_path: Path) -> None:
    """Otherwise the next one would share Ivy's cache with it, which Ivy does not lock."""
    bin_folder = tmp_path / "java" / "bin"
    (bin_folder / "slow").touch()
    code = "from pipeline.spark.jars import resolve; resolve('org.some', 'some', '1.0')"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            wait_until((bin_folder / "begun").exists, "the download")
        finally:
            process.kill()
    assert not eventually((bin_folder / "survived").exists, 4.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that has been written."""
    made = tmp_path / "made"
    made.mkdir()
    for name in ("a-1.0.jar", "b-2.0.jar"):
        (made / name).write_text(name)
    assert write_jars(tmp_path / "jars", SOME.name, sorted(made.iterdir()))
    assert not write_jars(tmp_path / "jars", SOME.name, sorted(made.iterdir()))
    return tmp_path / "jars"


@pytest.mark.parametrize("by_key", [True, False], ids=["[jars]", "environment"])
def test_a_folder_is_taken_and_else_a_mirror_asked_by_key_or_variable(
    ivy: Ivy, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, by_key: bool
) -> None:
    def given(key: str, variable: str, path: Path) -> JarsConfig:
        monkeypatch.setenv(variable, "/nowhere" if by_key else str(path))
        return parse({"jars": {key: str(path)}} if by_key else {}, where="test").jars

    taken = SOME.jars(given("folder", "LOGTWIN_JARS", folder))
    assert ([jar.name for jar in taken], ivy.calls) == (["a-1.0.jar", "b-2.0.jar"], [])
    monkeypatch.delenv("LOGTWIN_JARS")
    settings = tmp_path / "ivy.xml"
    with pytest.raises(ConfigurationError, match=f"cannot read Ivy's settings {settings}"):
        SOME.jars(given("ivy_settings", "LOGTWIN_IVY_SETTINGS", settings))
    settings.write_text("<ivysettings/>")
    SOME.jars(given("ivy_settings", "LOGTWIN_IVY_SETTINGS", settings))
    (call,) = ivy.calls
    assert f" -settings {settings} " in call


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda where: (where / "a-1.0.jar").unlink(), r"a-1\.0\.jar is not as .* found no such file"),
    "changed": (
        lambda where: (where / "a-1.0.jar").write_text("x"),
        r"a-1\.0\.jar is not as .* expected \w{64}, found",
    ),
    "another": (lambda where: (where / "b-2.1.jar").touch(), r"b-2\.1\.jar is not as .* expected no such file, found"),
    "cut short": (lambda where: (where / LIST).write_text(""), r"no some-1\.0 with a SHA256SUMS"),
    "of another version": (lambda where: where.rename(where.with_name("some-0.9")), r"some-1\.0, found some-0\.9\."),
    "empty": (shutil.rmtree, "found an empty folder"),
    "nowhere": (lambda where: shutil.rmtree(where.parent), "found no such folder"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_is_not_as_it_was_written_is_refused_and_written_anew(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    do, said = DAMAGE[damage]
    do(folder / SOME.name)
    with pytest.raises(ConfigurationError, match=said) as caught:
        jars_of(folder, SOME.name)
    assert "logtwin jars --to" in str(caught.value)
    assert write_jars(folder, SOME.name, sorted((tmp_path / "made").iterdir()))
    assert len(jars_of(folder, SOME.name)) == 2


@pytest.mark.job
def test_the_verb_writes_what_it_is_asked_for(
    ivy: Ivy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the network, whatever folder is named; then verbs take them there, and only sound ones."""
    to = tmp_path / "jars"
    monkeypatch.setenv("LOGTWIN_JARS", str(to))
    said = run(capsys, "jars", "--to", to, "--for", "delta,s3,azure,gs,kafka-demo")
    assert said.code == 0, said.err
    names = sorted(path.name.partition("-")[0] for path in to.iterdir())
    assert names == ["delta", "hadoop", "hadoop", "hadoop", "kafka_2.13", "slf4j"]
    assert len(ivy.calls) == 6
    for folder in to.iterdir():  # as others check and read them
        subprocess.run(["sha256sum", "--check", "--strict", LIST], cwd=folder, check=True, capture_output=True)
        assert folder.stat().st_mode == to.stat().st_mode
    # beside Spark's own jars not what it has itself
    assert "2 jars, 0.0 MB, already there" in run(capsys, "jars", "--to", to).out
    assert run(capsys, "jars", "--to", to, "--for", "delta,s4").code == 2
    (to / "file").touch()
    assert run(capsys, "jars", "--to", to / "file").code == 2

    next(to.glob("delta-*/some-*.jar")).unlink()
    said = run(capsys, "tables", "show", "messages")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert "some-1.0.jar is not as SHA256SUMS says" in said.err
