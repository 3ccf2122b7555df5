"""Jobs that commit to one table side by side: what each is told to be committed is there, once, and nothing else is."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from pipeline.system.processes import child_process
from sinks.storage.hadoop import reach
from sinks.storage.place import open_folder, placed
from sinks.storage.settings import VARIABLE, Storage
from sinks.warehouse import ensure_tables
from tests.objectstore.azurite import Azurite
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import Held
from tests.objectstore.lake import Lake
from tests.objectstore.racing import KINDS, SHARED, contents
from tests.objectstore.s3_requests import Kind, which
from tests.sinks.at_once import at_once

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

NAMES = ("one", "two")
Version = dict[str, Any]
nightly = partial(pytest.param, marks=pytest.mark.nightly)
_NUMBERS = count(1)


@pytest.fixture
def s3_lake(lake: str, s3: S3Server, s3_link: FaultProxy) -> tuple[str, Callable[[], list[Version]]]:
    """Versions take a moment to get there, in which others can look whether there is one."""
    s3_link.inject(Held(0.02), which(Kind.PUT, Kind.COPY, key=r"/_delta_log/\d+\.json$"))
    return lake, lambda: [contents(version) for version in Lake(s3).versions()]


@pytest.fixture
def disk_lake(tmp_path: Path) -> tuple[str, Callable[[], list[Version]]]:
    return str(tmp_path), lambda: [
        contents(file.read_bytes()) for file in sorted((tmp_path / "log/_delta_log").glob("0*[0-9].json"))
    ]


@pytest.fixture
def azure_lake(
    spark: SparkSession, azure: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Callable[[], list[Version]]]:
    warehouse = azure.with_container(f"races-{next(_NUMBERS)}")
    monkeypatch.setenv(VARIABLE, Storage.model_validate(azure.storage()).as_text())
    reach(spark, placed(warehouse), str(tmp_path))
    return warehouse, lambda: versions_in(f"{warehouse}/log/_delta_log")


def versions_in(folder: str) -> list[Version]:
    """As Arrow finds them."""
    filesystem, inside = open_folder(folder)
    files = filesystem.get_file_info(pafs.FileSelector(inside))
    paths = sorted(one.path for one in files if re.fullmatch(r"\d+\.json", one.base_name))
    return [contents(filesystem.open_input_file(path).read()) for path in paths]


def in_processes(spark: SparkSession, warehouse: str, kind: str, commits: int) -> list[list[str]]:
    """This one, and one of its own session."""
    mine, other = NAMES
    command = [sys.executable, "-m", "tests.objectstore.racing", warehouse, other, kind, str(commits)]
    folder = Path(__file__).parents[2]
    with child_process(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        said = KINDS[kind](spark, warehouse, mine, commits)
        return [said, json.loads(process.stdout.readline())]


@pytest.mark.parametrize(
    ("place", "kind", "how", "commits"),
    [
        ("s3_lake", "append", "threads", 8),
        ("s3_lake", "own", "threads", 8),
        ("disk_lake", "own", "threads", 10),
        nightly("s3_lake", "append", "processes", 25),
        nightly("azure_lake", "append", "threads", 10),
        nightly("azure_lake", "own", "threads", 10),
        nightly("disk_lake", "append", "threads", 25),
        *(
            pytest.param(place, kind, "processes", 500, marks=pytest.mark.soak)
            for place in ("s3_lake", "azure_lake", "disk_lake")
            for kind in KINDS
        ),
    ],
)
def test_commits_side_by_side_are_there_once(
    request: pytest.FixtureRequest, spark: SparkSession, place: str, kind: str, how: str, commits: int
) -> None:
    warehouse, versions = request.getfixturevalue(place)
    ensure_tables(spark, warehouse)
    before = len(versions())
    if how == "threads":
        told = at_once([partial(KINDS[kind], spark, warehouse, name, commits) for name in NAMES])
    else:
        told = in_processes(spark, warehouse, kind, commits)
    found = versions()[before:]
    # what no other commit has
    there = [one["add"]["path"] if kind == "append" else state_of(one)["commit"] for one in found]
    assert all(len(said) >= commits for said in told)
    assert Counter(there) == Counter(chain(*told))
    assert set(Counter(there).values()) == {1}
    if kind == "own":
        assert_one_owner_at_a_time(found)


def state_of(version: Version) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(version["domains"][f"logtwin.{SHARED}"])
    return state


def assert_one_owner_at_a_time(versions: list[Version]) -> None:
    """Who moved the log had it: its claim is the newest before. And it was moved from where it was."""
    owner, offset = None, 0
    for version in versions:
        state = state_of(version)
        if "add" in version:
            assert (state["run"], state["offset"]) == (owner, offset + 10)
            offset += 10
        else:
            assert state.get("offset") == (offset or None)
        owner = state["run"]
