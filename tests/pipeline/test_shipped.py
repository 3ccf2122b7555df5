"""What comes along with an installed wheel: the documents, and the files for those who run it."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.system import shipped
from sources.errors import ConfigurationError
from tests import documents
from tests.pipeline.operator_at_work import run
from tests.pipeline.standalone import PROJECT, bare_python

FILES = {
    *(str(path.relative_to(PROJECT)) for path in (PROJECT / "conf").glob("*/*")),
    *(f"airflow_dags/{one.name}" for one in (PROJECT / "airflow_dags").iterdir() if one.is_file()),
    "conf/Dockerfile",
    "conf/logtwin.toml",
    "pipeline/submit.py",
}  # fmt: skip
PAGES = {str(page.relative_to(PROJECT)) for page in documents.PAGES} - {"CONTRIBUTING.md", "SECURITY.md"}


def test_every_page_is_listed_and_shown_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert {str(one.relative_to(PROJECT)) for one in shipped.pages().values()} == PAGES | {"conf/logtwin.toml"}
    _, listed, _ = run(capsys, "docs")
    assert re.search(r"^first-job +A first job$", listed, re.M)
    assert "decisions/0" not in listed
    _, shown, _ = run(capsys, "docs", "docs/first-job.md")
    assert shown.startswith("# A first job\n")
    assert "<!-- not run" not in shown
    _, keys, _ = run(capsys, "docs", "logtwin.toml")
    assert (PROJECT / "conf" / "logtwin.toml").read_text() in keys
    code, _, said = run(capsys, "docs", "frist-job")
    assert (code, "Did you mean first-job?" in said) == (2, True)


def test_files_are_written_once_and_nobodys_changes_are_lost(tmp_path: Path) -> None:
    written = shipped.write_files(tmp_path)
    assert {str(one.relative_to(tmp_path)) for one in written} == FILES
    assert all(one.read_bytes() == (PROJECT / one.relative_to(tmp_path)).read_bytes() for one in written)
    assert shipped.write_files(tmp_path) == written
    written[0].write_text("changed")
    written[1].unlink()
    with pytest.raises(ConfigurationError, match=re.escape(str(written[0]))):
        shipped.write_files(tmp_path)
    assert (written[0].read_text(), written[1].exists()) == ("changed", False)


@pytest.mark.spark  # of the tests that build the wheel
def test_the_wheel_brings_them_and_finds_them(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    shared = {name.partition("/share/logtwin/")[2] for name in names if "/share/logtwin/" in name}
    assert shared == PAGES | FILES
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    python = bare_python(tmp_path / "environment")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, wheel], check=True)
    logtwin = python.with_name("logtwin")
    done = subprocess.run(
        [logtwin, "docs", "airflow"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("# Airflow DAGs\n")
    subprocess.run([logtwin, "files", "--to", "files"], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert (tmp_path / "files/conf/systemd/logtwin.service").is_file()
