"""The files of the Delta log say what Kernel says, and no more is read than there is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sinks.delta.delta_log import newest
from sinks.delta.kernel import KernelTable
from sinks.state.fence import state_at
from sinks.state.position import LogTable, holes_at
from sources.errors import ReplicaError
from sources.offsets import LogId
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import BROKER_A, MemoryMaster

BROKER_B = LogId("rocketmq", "broker-b")
ADD = {"partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True, "stats": None}


def written(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    """A commit."""
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def added(path: str) -> dict[str, Any]:
    return {"add": {"path": path, **ADD}}


def begun(folder: Path, **protocol: Any) -> None:
    written(
        folder, 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **protocol}},
        {"metaData": {"id": "x", "schemaString": "{}"}}, added("a"),
    )  # fmt: skip


def test_actions_replace_each_other(tmp_path: Path) -> None:
    begun(tmp_path)
    written(
        tmp_path, 1, added("b%20c"), {"remove": {"path": "a"}}, {"txn": {"appId": "x", "version": 3}},
        {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}},
        {"domainMetadata": {"domain": "e", "configuration": "1", "removed": False}},
    )  # fmt: skip
    written(
        tmp_path, 2, {"commitInfo": {}}, {"txn": {"appId": "x", "version": 4}},
        {"domainMetadata": {"domain": "d", "configuration": "2", "removed": False}},
        {"domainMetadata": {"domain": "e", "configuration": "", "removed": True}},
    )  # fmt: skip
    found = newest(str(tmp_path))
    assert found is not None
    assert (found.version, found.domains(), found.domain("e")) == (2, {"d": "2"}, None)
    assert (found.transaction_version("x"), found.transaction_version("y")) == (4, None)
    assert [one.path for one in found.files.values()] == ["b c"]


def test_what_is_still_the_newest_is_not_read_again(tmp_path: Path) -> None:
    begun(tmp_path)
    known = newest(str(tmp_path))
    assert known is not None
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("nobody reads this")
    assert newest(str(tmp_path), known) is known
    begun(tmp_path)
    written(tmp_path, 1, added("b"))
    later = newest(str(tmp_path), known)
    assert later is not None
    assert (later.version, [*later.files]) == (1, ["a", "b"])


def test_a_folder_without_a_table_is_none(tmp_path: Path) -> None:
    assert newest(str(tmp_path / "none")) is None
    (tmp_path / "_delta_log").mkdir()
    assert newest(str(tmp_path)) is None


def test_a_checkpoint_stands_for_what_is_below_it_once_all_of_it_is_there(tmp_path: Path) -> None:
    begun(tmp_path)
    for version in range(1, 5):
        written(tmp_path, version, added(str(version)))
    log = tmp_path / "_delta_log"
    rows = [
        {"add": {"path": "of the checkpoint", "stats": None}, "protocol": None},
        {"add": None, "protocol": {"minReaderVersion": 1, "minWriterVersion": 7}},
    ]
    for part, row in enumerate(rows, start=1):
        table = pa.Table.from_pylist([row], schema=pa.Table.from_pylist(rows).schema)
        pq.write_table(table, log / f"{3:020}.checkpoint.{part:010}.{2:010}.parquet")
    (log / f"{4:020}.checkpoint.{1:010}.{2:010}.parquet").write_bytes(b"the other part never came")
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    found = newest(str(tmp_path))
    assert found is not None
    assert (found.version, [*found.files]) == (4, ["of the checkpoint", "4"])


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


def test_a_damaged_commit_is_named(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text('{"add": ')
    with pytest.raises(ReplicaError, match="cannot be read"):
        newest(str(tmp_path))


@pytest.mark.spark
def test_a_replica_is_what_kernel_says_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """Through commits, checkpoints and the removal of what lies below them."""
    masters = [MemoryMaster((100,) * 60), MemoryMaster((100,) * 60, log_id=BROKER_B)]
    replicas = [opened(spark, tmp_path, one) for one in masters]
    chance = random.Random(3)
    positions = [0, 0]
    table = KernelTable(spark, str(tmp_path / "log"))
    for _ in range(30):
        number = chance.randrange(2)
        end = positions[number] + 100 * chance.randrange(1, 4)
        replicas[number](ranges(positions[number], end, log_id=str(masters[number].log_id)))
        positions[number] = end
        by_kernel, found = table.snapshot(), newest(table.path)
        assert by_kernel is not None
        assert found is not None
        assert found.version == by_kernel.version
        assert found.domains() == by_kernel.domains()
        assert json.loads(found.schema_json()) == json.loads(by_kernel.schema_json())
        for log_id in (BROKER_A, BROKER_B):
            held = LogTable(spark, table.path, log_id).held_in(by_kernel)
            assert state_at(found, log_id) == held.state
            assert holes_at(found, log_id, held.state) == held.holes
        of_logs = (table.files(by_kernel, {"log_id": str(log_id)}) for log_id in (BROKER_A, BROKER_B))
        files = {one.path: one.statistics() for several in of_logs for one in several}
        assert {one.path: one.statistics() for one in found.files.values()} == files
    assert [*(tmp_path / "log" / "_delta_log").glob("*.checkpoint*.parquet")]
