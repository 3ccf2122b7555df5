"""Tables of metadata: states come in, versions come out, in every reader."""

import json
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sinks.delta import commits
from sinks.delta.commits import GroupCommit
from sinks.delta.data_file import DataFile
from sinks.delta.kernel import KernelTable
from sinks.history.metadata import SURE_FOR, MetadataTable
from sinks.tables import METADATA_TABLES, TableSpec, metadata_table
from sinks.upkeep.compaction import Merge, Merging
from sources.errors import ConfigurationError, MasterError, ReplicaError
from sources.metadata import TOPICS
from sources.offsets import LogId, Offset
from tests.around import at_first
from tests.patience import wait_until
from tests.sinks.at_once import at_once
from tests.sinks.unheard import lose_answers

BROKER_A, BROKER_B = LogId("rocketmq", "broker-a"), LogId("rocketmq", "broker-b")
START = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOON, LATER, MUCH_LATER = START, START + MINUTE, START + 2 * MINUTE


def topics(**perms: int) -> pa.Table:
    rows = [
        {"topic": name, "perm": perm, "attributes": [("message.type", "FIFO")], "stored": json.dumps({"perm": perm})}
        for name, perm in perms.items()
    ]
    return pa.Table.from_pylist(rows, schema=TOPICS.schema)


def delta(warehouse: Path, name: str = "topics") -> DeltaTable:
    return DeltaTable(str(warehouse / name))


def rows(warehouse: Path, name: str = "topics", log: LogId = BROKER_A) -> list[dict[str, Any]]:
    found = delta(warehouse, name).to_pyarrow_table().to_pylist()
    return [row for row in found if row["log_id"] == str(log)]


def versions(warehouse: Path) -> list[tuple[str, int, datetime, datetime | None, bool]]:
    """(topic, perm, valid_from, valid_to, is_current) in order."""
    found = [
        (row["topic"], row["perm"], row["valid_from"], row["valid_to"], row["is_current"]) for row in rows(warehouse)
    ]
    return sorted(found, key=lambda row: (row[0], row[2]))


@pytest.fixture
def table(plain: SparkSession, tmp_path: Path) -> MetadataTable:
    return MetadataTable(plain, str(tmp_path), BROKER_A, TOPICS)


@pytest.mark.parametrize("spec", METADATA_TABLES, ids=lambda spec: spec.name)
def test_every_table_has_a_key_and_times(spec: TableSpec) -> None:
    names = spec.schema.names
    assert names[0] == "log_id"
    assert names[-3:] == ["valid_from", "valid_to", "is_current"]
    assert set(spec.statistics) <= set(names) - set(spec.partitioning)


def test_items_come_change_go_and_come_back(tmp_path: Path, table: MetadataTable) -> None:
    """MS-18."""
    assert table.record(topics(orders=6, payments=6), NOON) == 2
    assert table.record(topics(orders=4, refunds=6), LATER) == 4
    assert table.record(topics(orders=4, payments=6), MUCH_LATER) == 2
    assert versions(tmp_path) == [
        ("orders", 6, NOON, LATER, False),
        ("orders", 4, LATER, None, True),
        ("payments", 6, NOON, LATER, False),
        ("payments", 6, MUCH_LATER, None, True),
        ("refunds", 6, LATER, MUCH_LATER, False),
    ]
    assert delta(tmp_path).version() == 3  # one commit a fetch


def test_history_is_written_once(tmp_path: Path, table: MetadataTable) -> None:
    """A change exchanges the current file only."""
    for number in range(4):
        table.record(topics(orders=number, payments=6), START + number * MINUTE)
    removed: list[bool] = []
    for commit in sorted((tmp_path / "topics/_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        removed += [
            action["remove"]["partitionValues"]["is_current"] == "true" for action in actions if "remove" in action
        ]
    assert removed == [True] * 3
    assert len(delta(tmp_path).file_uris()) == 4


def test_logs_that_write_at_once_do_not_conflict(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "ATTEMPTS", 1)
    logs = [LogId("rocketmq", f"broker-{letter}") for letter in "abcd"]

    def write(log_id: LogId) -> None:
        mine = MetadataTable(plain, str(tmp_path), log_id, TOPICS)
        for number in range(5):
            mine.record(topics(orders=number), START + number * MINUTE)

    at_once([partial(write, log_id) for log_id in logs])
    for log_id in logs:
        found = sorted((row["perm"], row["is_current"]) for row in rows(tmp_path, log=log_id))
        assert found == [(0, False), (1, False), (2, False), (3, False), (4, True)]


def test_fetches_that_wait_for_a_commit_are_one_and_an_error_is_its_own(plain: SparkSession, tmp_path: Path) -> None:
    logs = [LogId("rocketmq", f"broker-{letter}") for letter in "abcb"]  # of one that is started anew there are two
    tables = [MetadataTable(plain, str(tmp_path), log_id, TOPICS) for log_id in logs]
    tables[0].record(topics(orders=6), NOON, 7)
    fetched = tables[0]._shared._fetched
    with ThreadPoolExecutor(4) as pool:
        with fetched._turn:
            writing = [pool.submit(one.record, topics(orders=4), LATER, 6) for one in tables]  # the first one is late
            wait_until(lambda: len(fetched._waiting) == 4, "all wait")
        failed = [error for one in writing if (error := one.exception()) is not None]
    assert delta(tmp_path).version() == 2
    assert [(type(one), str(getattr(one, "log", ""))) for one in failed] == [(MasterError, "rocketmq/broker-a")]
    assert [[row["perm"] for row in rows(tmp_path, log=log_id)] for log_id in logs] == [[6], [4], [4], [4]]


def test_somebody_who_commits_in_between_makes_it_look_again(
    plain: SparkSession, tmp_path: Path, table: MetadataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other files are in the place of those that were compared; nothing may be lost or doubled."""
    table.record(topics(orders=6), NOON)
    table.record(topics(orders=6, payments=6), LATER)
    kernel = KernelTable(plain, str(tmp_path / "topics"))
    interrupted = at_first(monkeypatch, KernelTable, "replace", lambda: rewrite(kernel))
    assert table.record(topics(orders=4, payments=6), MUCH_LATER) == 2
    assert interrupted
    assert versions(tmp_path) == [
        ("orders", 6, NOON, MUCH_LATER, False),
        ("orders", 4, MUCH_LATER, None, True),
        ("payments", 6, LATER, None, True),
    ]


def test_a_merge_gives_files_that_spark_wrote_the_columns_that_they_lack(tmp_path: Path, table: MetadataTable) -> None:
    table.record(topics(orders=6, payments=4), NOON)
    (file,) = (tmp_path / "topics").glob("*.parquet")
    ours = pq.read_table(file)
    partition: dict[str, str | bool] = {"log_id": str(BROKER_A), "is_current": True}
    pq.write_table(ours.drop_columns(list(partition)), file)
    merge = Merging(metadata_table(TOPICS), str(file.parent), partition)
    merged = merge(Merge(Offset(0), 2, [file.name]))
    assert pq.read_table(file.with_name(merged.name)).equals(ours)


def test_a_table_that_was_removed_is_made_again(plain: SparkSession, tmp_path: Path, table: MetadataTable) -> None:
    table.record(topics(a=6), NOON)
    shutil.rmtree(tmp_path / "topics")
    table.record(topics(a=7), LATER)
    assert versions(tmp_path) == [("a", 7, LATER, None, True)]
    shutil.rmtree(tmp_path / "topics")
    assert table.record(topics(a=7), LATER + SURE_FOR - MINUTE) == 0  # it is not looked at so soon
    assert not (tmp_path / "topics").exists()
    table.record(topics(a=7), LATER + SURE_FOR)  # nothing has changed, and still it is noticed in the end
    assert versions(tmp_path) == [("a", 7, LATER + SURE_FOR, None, True)]
    shutil.rmtree(tmp_path / "topics")
    MetadataTable(plain, str(tmp_path), BROKER_A, TOPICS).record(topics(a=8), LATER)  # of another run of the process
    assert versions(tmp_path) == [("a", 8, LATER, None, True)]


def test_a_table_that_is_not_ours_is_the_error_of_the_log_that_was_fetched(
    tmp_path: Path, table: MetadataTable
) -> None:
    write_deltalake(str(tmp_path / "topics"), pa.table({"topic": ["orders"]}))
    with pytest.raises(ConfigurationError) as caught:
        table.record(topics(orders=6), NOON)
    assert caught.value.log == str(BROKER_A)
    assert delta(tmp_path).version() == 0


def test_a_clock_that_goes_back_makes_no_overlap(tmp_path: Path, table: MetadataTable) -> None:
    table.record(topics(orders=6), LATER)
    table.record(topics(), MUCH_LATER)
    table.record(topics(orders=6), NOON)
    tick = timedelta(microseconds=1)
    assert versions(tmp_path) == [("orders", 6, LATER, MUCH_LATER, False), ("orders", 6, MUCH_LATER + tick, None, True)]


def rewrite(table: KernelTable) -> None:
    """The same rows in other files, the current ones too."""
    on = table.existing()
    files = [file for is_current in (True, False) for file in table.files(on, {"is_current": is_current})]
    copies = []
    for file in files:
        name, records = f"copy-{file.path}", int(file.statistics()["numRecords"])
        shutil.copy(Path(table.path, file.path), Path(table.path, name))
        copy = DataFile(name, file.size_bytes, file.modified_ms, records, file.action["stats"])
        copies.append((file.partition(), copy))
    table.rearrange(on, files, copies)


def test_an_unheard_commit_is_not_done_twice(
    tmp_path: Path, table: MetadataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.record(topics(orders=6), NOON)
    lost = lose_answers(monkeypatch)
    table.record(topics(orders=4), LATER)
    assert lost == {"topics": 1}
    assert versions(tmp_path) == [("orders", 6, NOON, LATER, False), ("orders", 4, LATER, None, True)]


def test_a_file_that_cannot_be_read_is_the_replicas_failure(tmp_path: Path, table: MetadataTable) -> None:
    table.record(topics(orders=6), NOON)
    for path in (tmp_path / "topics").glob("*.parquet"):
        path.write_bytes(b"not Parquet")
    with pytest.raises(ReplicaError, match="cannot be written") as caught:
        table.record(topics(orders=4), LATER)
    assert caught.value.hint


def test_those_that_wait_are_served_together_by_the_next_when_one_fails() -> None:
    served: list[list[str]] = []
    goes_on = threading.Event()

    def commit(wanted: Sequence[str]) -> None:
        if not served:
            served.append([])
            goes_on.wait(60)
            raise KeyboardInterrupt
        served.append([*wanted])

    group = GroupCommit(commit)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(group.take, "a")
        wait_until(lambda: served == [[]], "the first to begin")
        others = [pool.submit(group.take, name) for name in "bcd"]
        wait_until(lambda: len(group._waiting) == 4, "all to wait")
        goes_on.set()
        for other in others:
            other.result()
        with pytest.raises(KeyboardInterrupt):
            first.result()
    assert [sorted(names) for names in served] == [[], ["a", "b", "c", "d"]]
