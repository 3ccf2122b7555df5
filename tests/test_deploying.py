"""What conf/ has for systemd and containers, and for this project's own hooks, fits the code."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pipeline.config.configuration import load
from pipeline.spark.jars import delta_set, storage_sets
from sources import errors
from sources.errors import LogtwinError
from tests.pipeline.standalone import WHEEL_PARTS
from tests.test_commands_doc import unknown

PROJECT = Path(__file__).parents[1]
UNIT = PROJECT / "conf" / "systemd" / "logtwin.service"
DOCKERFILE = PROJECT / "conf" / "Dockerfile"


def settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def kinds(of: type[LogtwinError] = LogtwinError) -> Iterator[type[LogtwinError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_a_job_whose_error_may_pass_is_started_again_and_what_stays_down_cannot() -> None:
    [stay_down] = settings("RestartPreventExitStatus")
    codes = {int(code) for code in stay_down.split()}
    ours = [kind for kind in kinds() if kind.__module__ == errors.__name__]
    assert codes == {2, 4, 5}
    assert codes <= {kind.exit_code for kind in ours}
    assert not codes & {kind.exit_code for kind in ours if kind.is_transient}


def test_the_jvm_is_not_told_to_end() -> None:
    assert settings("KillMode") == ["mixed"]


def test_the_unit_is_a_unit(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/logtwin/bin/logtwin", "/bin/true"))
    done = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    if "Failed to" in done.stderr and str(unit) not in done.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert UNIT.name not in done.stderr, done.stderr


def test_the_image_has_what_the_wheel_is_made_of() -> None:
    copied = set(re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE))
    assert {name for line in copied for name in line.split()} == set(WHEEL_PARTS)


def test_the_dockerfile_passes_its_linter() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if linter is None:
        pytest.skip("no hadolint")
    done = subprocess.run([linter, str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((PROJECT / "conf" / "kubernetes" / name).read_text()))


def test_the_job_on_kubernetes_is_one_and_writes_where_the_image_does(tmp_path: Path) -> None:
    documents = manifests("logtwin.yaml")
    for one in documents:
        kubernetes_validate.validate(one, "1.34", strict=True)
    settings, _, deployment = documents
    (tmp_path / "logtwin.toml").write_text(settings["data"]["logtwin.toml"])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [one["containerPort"] for one in container["ports"]] == [load(tmp_path / "logtwin.toml").metrics.port]
    mounted = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert mounted == {"/tmp", "/var/cache/logtwin"}  # noqa: S108


def test_the_spark_application_has_the_jars_and_words_of_this_version() -> None:
    (application,) = (one["spec"] for one in manifests("spark-application.yaml"))
    folders = ":".join(f"/opt/logtwin/jars/{one.name}/*" for one in (delta_set(), *storage_sets("s3")))
    assert {value for name, value in application["sparkConf"].items() if "ClassPath" in name} == {folders}
    assert unknown(" ".join(application["arguments"])) == []


def test_each_page_of_the_site_is_in_its_menu() -> None:
    """As `make docs` checks it, but for the records of decisions, without MkDocs."""
    text = (PROJECT / "mkdocs.yml").read_text()
    menu = set(re.findall(r"^ +- (\S+\.md)$", text, re.MULTILINE))
    for page in (PROJECT / "docs").glob("*.md"):
        assert page.name in menu
