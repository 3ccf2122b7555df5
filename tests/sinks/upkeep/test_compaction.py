"""Small files become large ones, and nothing else changes; also while others commit."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.kernel import KernelTable
from sinks.tables import LOG
from sinks.upkeep import compaction
from sinks.upkeep.compaction import Candidate, Compaction, Compactor, Sizes, groups
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from tests.around import at_first
from tests.sinks.batches import offsets
from tests.sinks.long_log import file_of
from tests.sinks.memory_master import BROKER_A

SIZES = Sizes(target_bytes=1000, min_files=4)
MANY = Sizes(target_bytes=1 << 20, min_files=3)


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([100] * 25, [list(range(10)), list(range(10, 20)), list(range(20, 25))]),  # in order, up to the target
        ([100] * 3, []),  # too few
        ([], []),
        # a large one is left alone, and parts what is around it
        ([100, 100, 100, 251, 100, 100, 100, 100], [[4, 5, 6, 7]]),
        ([100, 100, 250, 100], [[0, 1, 2, 3]]),
        # what was filled is not merged again
        ([1000] * 20, []),
        ([500] * 20, []),
    ],
)
def test_which_files_are_merged(sizes: list[int], merged: list[list[int]]) -> None:
    candidates = [Candidate(at * 100, f"file-{at:03d}", size, 5) for at, size in enumerate(sizes)]
    found = groups(reversed(candidates), SIZES)
    assert [[int(one.path[-3:]) for one in group] for group in found] == merged


@pytest.fixture
def table(plain: SparkSession, tmp_path: Path) -> KernelTable:
    ensure_tables(plain, str(tmp_path))
    table = KernelTable(plain, LOG.path(str(tmp_path)))
    for first in range(0, 40, 5):
        commit(table, file_of(table.path, first, first + 5))
    return table


def commit(table: KernelTable, *files: DataFile) -> None:
    table.commit(table.existing(), files)


def compactor(plain: SparkSession, table: KernelTable) -> Compactor:
    return Compactor(plain, LOG, table.path, [BROKER_A], MANY)


def names(table: KernelTable) -> set[str]:
    return {file.path for file in table.files(table.existing(), {"log_id": str(BROKER_A)})}


def rows(table: KernelTable) -> list[dict[str, object]]:
    found: list[dict[str, object]] = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: str(row["offset"]).zfill(20))


def test_rows_and_columns_stay_and_the_second_run_changes_nothing(plain: SparkSession, table: KernelTable) -> None:
    before = rows(table)
    planned = compactor(plain, table).plan(BROKER_A)
    done = compactor(plain, table).run(BROKER_A)
    assert (planned.files, planned.into) == (done.files, done.into) == (8, 1)
    assert rows(table) == before
    version = table.existing().version
    (file,) = table.files(table.existing(), {"log_id": str(BROKER_A)})
    assert file.size_bytes == done.bytes_after < done.bytes
    said = file.statistics()
    assert (said["numRecords"], said["minValues"]["offset"], said["maxValues"]["offset"]) == (40, 0, 3900)
    assert compactor(plain, table).run(BROKER_A) == Compaction()
    assert table.existing().version == version


def after_the_merge(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do it when the files are written, and before their commit."""
    at_first(patch, Compactor, "_merge", act, after=True)


def test_commits_in_between_are_stepped_over(
    plain: SparkSession, table: KernelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream commits while files are merged: nothing is lost or doubled."""
    after_the_merge(monkeypatch, lambda: commit(KernelTable(plain, table.path), file_of(table.path, 40, 41)))
    assert compactor(plain, table).run(BROKER_A).files == 8
    assert len(names(table)) == 2
    assert offsets(Path(table.path).parent) == [at * 100 for at in range(41)]


def test_files_that_somebody_else_took_are_left_to_him(
    plain: SparkSession, table: KernelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = table.files(table.existing(), {"log_id": str(BROKER_A)})[3]
    after_the_merge(monkeypatch, lambda: table.replace(table.existing(), [taken], [], domains={"place": "1"}))
    before = names(table) - {taken.path}
    assert compactor(plain, table).run(BROKER_A) == Compaction()
    assert names(table) == before


def test_what_happened_during_a_rest_is_seen(
    plain: SparkSession, table: KernelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rest: a commit on a version of before it would have to look at all that came since."""
    monkeypatch.setattr(compaction, "_READ_AGAIN_S", 0.0)
    taken = table.files(table.existing(), {"log_id": str(BROKER_A)})[0]
    before = table.existing()

    def rest() -> None:
        table.replace(before, [taken], [], domains={"place": "1"})

    paced = Compactor(plain, LOG, table.path, [BROKER_A], Sizes(target_bytes=10**6, min_files=2), pace=rest)
    assert (paced.run(BROKER_A).files, taken.path in names(table)) == (7, False)


def test_a_damaged_file_is_named_and_nothing_changes(plain: SparkSession, table: KernelTable) -> None:
    before = names(table)
    damaged = sorted(before)[2]
    Path(f"{table.path}/{damaged}").write_bytes(b"no parquet")
    with pytest.raises(ReplicaError, match=damaged):
        compactor(plain, table).run(BROKER_A)
    assert names(table) == before


def test_files_with_other_rows_than_the_delta_log_says_stay_as_they_are(
    plain: SparkSession, table: KernelTable
) -> None:
    before = names(table)
    lacking = f"{table.path}/{min(before)}"
    pq.write_table(pq.read_table(lacking).slice(1), lacking)
    with pytest.raises(ReplicaError, match="cannot be merged") as caught:
        compactor(plain, table).run(BROKER_A)
    assert (caught.value.expected, caught.value.found) == ("40 rows in 8 files", "39")
    assert names(table) == before


def test_each_commit_takes_its_part(plain: SparkSession, table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_READ_AGAIN_S", 0.0)
    pieces = list[int]()
    size_bytes = max(file.size_bytes for file in table.files(table.existing(), {"log_id": str(BROKER_A)}))
    version = table.existing().version
    sizes = Sizes(target_bytes=4 * size_bytes, min_files=4)
    paced = Compactor(plain, LOG, table.path, [BROKER_A], sizes, pace=lambda: pieces.append(len(names(table))))
    done = paced.run(BROKER_A)
    assert (done.files, done.into) == (8, 2)
    assert pieces == [8, 5]
    assert table.existing().version == version + 2
    assert offsets(Path(table.path).parent) == list(range(0, 4000, 100))
    found = [file.statistics() for file in table.files(table.existing(), {"log_id": str(BROKER_A)})]
    bounds = [(one["minValues"]["offset"], one["maxValues"]["offset"]) for one in found]
    assert sorted(bounds) == [(0, 1900), (2000, 3900)]
