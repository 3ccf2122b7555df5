"""The files of the Delta log say what Kernel says, and no more is read than there is."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sinks.delta.delta_log import LoggedVersion, newest, transactions_at
from sources.errors import ReplicaError
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import MemoryMaster
from tests.sinks.upkeep.test_log_entries import commits

ADD = {"partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True, "stats": None}


def written(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    """A commit, as other writers than ours leave it."""
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, ({"commitInfo": {}}, *actions))))


def added(path: str) -> dict[str, Any]:
    return {"add": {"path": path, **ADD}}


def begun(folder: Path, **protocol: Any) -> None:
    written(
        folder, 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **protocol}},
        {"metaData": {"id": "x", "schemaString": "{}"}}, added("a"),
    )  # fmt: skip


def found_in(folder: Path, known: LoggedVersion | None = None) -> LoggedVersion:
    found = newest(str(folder), known)
    assert found is not None
    return found


def test_actions_replace_each_other(tmp_path: Path) -> None:
    begun(tmp_path)
    written(
        tmp_path, 1, added("b%20c"), {"remove": {"path": "a"}}, {"txn": {"appId": "x", "version": 3}},
        {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}},
        {"domainMetadata": {"domain": "e", "configuration": "1", "removed": False}},
    )  # fmt: skip
    written(
        tmp_path, 2, {"txn": {"appId": "x", "version": 4}},
        {"domainMetadata": {"domain": "d", "configuration": "2", "removed": False}},
        {"domainMetadata": {"domain": "e", "configuration": "", "removed": True}},
    )  # fmt: skip
    found = found_in(tmp_path)
    assert (found.version, found.domains(), found.domain("e")) == (2, {"d": "2"}, None)
    assert (found.transaction_version("x"), found.transaction_version("y")) == (4, None)
    assert [one.path for one in found.files.values()] == ["b c"]


def test_all_transactions_of_a_version_are_read_at_once(tmp_path: Path) -> None:
    begun(tmp_path)
    for version, app in enumerate("xyxz", start=1):
        written(tmp_path, version, added(str(version)), {"txn": {"appId": app, "version": version * 10}})
    path = str(tmp_path)
    assert transactions_at(path, 4) == {"x": 30, "y": 20, "z": 40}
    assert transactions_at(path, 2) == {"x": 10, "y": 20}
    assert transactions_at(path, 0) == {}
    rows = [{"txn": {"appId": "x", "version": 30}}, {"txn": None}, {"txn": {"appId": "w", "version": 1}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "_delta_log" / f"{3:020}.checkpoint.parquet")
    assert transactions_at(path, 4) == {"x": 30, "w": 1, "z": 40}
    assert transactions_at(path, 2) == {"x": 10, "y": 20}  # from the commits before it
    file(tmp_path, 4).unlink()
    with pytest.raises(ReplicaError, match=f"{4:020}.json is missing below 4"):
        transactions_at(path, 4)


def test_what_is_still_the_newest_is_not_read_again(tmp_path: Path) -> None:
    begun(tmp_path)
    known = found_in(tmp_path)
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("nobody reads this")
    assert newest(str(tmp_path), known) is known
    begun(tmp_path)
    written(tmp_path, 1, added("b"))
    later = found_in(tmp_path, known)
    assert (later.version, [*later.files]) == (1, ["a", "b"])


def test_a_folder_without_a_table_is_none(tmp_path: Path) -> None:
    assert newest(str(tmp_path / "none")) is None
    (tmp_path / "_delta_log").mkdir()
    assert newest(str(tmp_path)) is None


def test_only_a_whole_checkpoint_replaces_older_commits(tmp_path: Path) -> None:
    begun(tmp_path)
    for version in range(1, 5):
        written(tmp_path, version, added(str(version)))
    log = tmp_path / "_delta_log"
    rows = [
        {"add": {"path": "of the checkpoint", "stats": None}, "protocol": None, "metaData": {"id": "x"}},
        {"add": {"path": "3", "stats": None}, "protocol": {"minReaderVersion": 1, "minWriterVersion": 7}},
    ]
    for part, row in enumerate(rows, start=1):
        table = pa.Table.from_pylist([row], schema=pa.Table.from_pylist(rows).schema)
        pq.write_table(table, log / f"{3:020}.checkpoint.{part:010}.{2:010}.parquet")
    (log / f"{4:020}.checkpoint.{1:010}.{2:010}.parquet").write_bytes(b"the other part never came")
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    found = found_in(tmp_path)
    assert (found.version, [*found.files]) == (4, ["of the checkpoint", "3", "4"])


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_version_that_is_missing_is_named(tmp_path: Path, lacks: int) -> None:
    begun(tmp_path)
    for version in (1, 2):
        written(tmp_path, version, added(str(version)))
    (tmp_path / "_delta_log" / f"{lacks:020}.json").unlink()
    with pytest.raises(ReplicaError, match=f"version {lacks} is missing below 2"):
        newest(str(tmp_path))


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        ({"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}, "deletionVectors"),
        ({"minReaderVersion": 2}, "reader version 2"),
    ],
)
def test_what_a_reader_would_have_to_know_is_left_to_spark(
    tmp_path: Path, protocol: dict[str, Any], named: str
) -> None:
    begun(tmp_path, **protocol)
    with pytest.raises(ReplicaError, match=named):
        newest(str(tmp_path))


def file(folder: Path, version: int, ending: str = "json") -> Path:
    return folder / "_delta_log" / f"{version:020}.{ending}"


@pytest.mark.parametrize("content", ['{"add": ', "", "\n", "[1]\n", '{"commitInfo": 7}', json.dumps(added("b"))])
@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_commit_is_named(tmp_path: Path, version: int, content: str) -> None:
    begun(tmp_path)
    written(tmp_path, 1, added("b"))
    written(tmp_path, 2, added("c"))
    file(tmp_path, version).write_text(content)
    with pytest.raises(ReplicaError, match=f"cannot be read; found {version:020}.json") as caught:
        newest(str(tmp_path))
    assert "backup" in str(caught.value.hint)


@pytest.mark.parametrize("lacks", ["protocol", "metaData"])
def test_a_table_without_protocol_or_metadata_is_none(tmp_path: Path, lacks: str) -> None:
    begun(tmp_path)
    first = file(tmp_path, 0)
    first.write_text("\n".join(line for line in first.read_text().splitlines() if lacks not in line))
    with pytest.raises(ReplicaError, match=f"version 0 has no {lacks}"):
        newest(str(tmp_path))


@pytest.mark.parametrize("is_newest", [True, False])
def test_an_older_checkpoint_in_the_place_of_a_newer_one_is_found(tmp_path: Path, is_newest: bool) -> None:
    """Of delta-rs, whose commits do not count their actions."""
    checkpoints = commits(tmp_path, 4)
    if not is_newest:
        write_deltalake(tmp_path, pa.table({"n": [4]}), mode="append")
    assert len(found_in(tmp_path).files) == (4 if is_newest else 5)
    checkpoints[-1].write_bytes(checkpoints[-2].read_bytes())
    with pytest.raises(ReplicaError, match=f"{checkpoints[-1].name} is not of its version"):
        newest(str(tmp_path))


CHECKSUM: dict[str, Any] = {
    "numFiles": 2, "tableSizeBytes": 2, "domainMetadata": [{"domain": "d", "configuration": "1", "removed": False}]
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, None),
        ({"numFiles": None, "tableSizeBytes": None, "domainMetadata": None}, None),
        ({"numFiles": 3}, "numFiles 3, and the Delta log gives 2"),
        ({"tableSizeBytes": 3}, "tableSizeBytes 3"),
        ({"domainMetadata": []}, "domain d"),
        ({"domainMetadata": [{"domain": "d", "configuration": "0"}]}, "domain d"),
        ({"numFiles": 3, "txnId": "of this commit"}, "numFiles 3"),
        ({"numFiles": 3, "txnId": "of another commit"}, None),
    ],
)
def test_a_version_is_that_of_its_checksum(tmp_path: Path, said: dict[str, Any], wrong: str | None) -> None:
    begun(tmp_path)
    domain = {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}}
    info = {"commitInfo": {"txnId": "of this commit"}}
    file(tmp_path, 1).write_text("\n".join(map(json.dumps, (info, domain, added("b")))))
    file(tmp_path, 1, "crc").write_text(json.dumps(CHECKSUM | said))
    written(tmp_path, 2, added("c"))
    if wrong is None:
        assert newest(str(tmp_path)) is not None
    else:
        with pytest.raises(ReplicaError, match=f"version 1 is not that of its checksum: .*{wrong}"):
            newest(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7"])
def test_a_checksum_that_a_crash_has_cut_proves_nothing(tmp_path: Path, content: bytes) -> None:
    begun(tmp_path)
    file(tmp_path, 0, "crc").write_bytes(content)
    assert newest(str(tmp_path)) is not None


def test_no_line_of_a_replicas_log_can_be_lost(plain: SparkSession, tmp_path: Path) -> None:
    """In each commit that is read: all lines from any one on, and each file whole."""
    replica = opened(plain, tmp_path, MemoryMaster((100,) * 60))
    for end in range(200, 1000, 200):
        replica(ranges(end - 200, end))
    path = str(tmp_path / "log")
    assert newest(path) is not None
    for commit in sorted((tmp_path / "log" / "_delta_log").glob("*.json")):
        whole = commit.read_bytes()
        lines = whole.splitlines(keepends=True)
        for kept in range(len(lines)):
            commit.write_bytes(b"".join(lines[:kept]))
            with pytest.raises(ReplicaError, match=commit.name):
                newest(path)
        commit.write_bytes(whole)
    assert newest(path) is not None
