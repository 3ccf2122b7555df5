"""Rows that follow commits: of several applications in one commit, each once."""

from collections.abc import Collection, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.books.bookkeeping import EpochsTable
from sinks.books.follow_up_table import FollowingTable
from sinks.delta import commits
from sinks.delta.data_file import DataFile
from sinks.delta.kernel import KernelConflict, KernelTable
from sinks.tables import LEDGER
from sources.epochs import Epoch
from sources.errors import ReplicaError
from sources.offsets import Offset
from tests.around import at_first
from tests.sinks.memory_master import BROKER_A
from tests.sinks.test_position import ROW


class Following:
    """The ledger, with a row for each application that is asked for; `asked` tells for which."""

    def __init__(self, plain: SparkSession, folder: Path) -> None:
        self.path = LEDGER.path(str(folder))
        self.table = FollowingTable(plain, LEDGER, self.path)
        self.table.ensure()
        self.asked: list[set[str]] = []

    def append(self, **owed: int) -> set[str]:
        return self.table.append_each(owed, self.files)

    def files(self, wanted: Collection[str]) -> Sequence[DataFile]:
        self.asked.append(set(wanted))
        rows = [{"log_id": app, "epoch": 0, **ROW.as_dict()} for app in sorted(wanted)]
        return [self.table.written(rows, 0)]

    @property
    def rows(self) -> list[str]:
        return sorted(DeltaTable(self.path).to_pyarrow_table(columns=["log_id"])["log_id"].to_pylist())

    @property
    def version(self) -> int:
        return int(DeltaTable(self.path).version())


@pytest.fixture
def following(plain: SparkSession, tmp_path: Path) -> Following:
    return Following(plain, tmp_path)


def test_what_several_owe_is_one_commit_and_each_has_its_version(following: Following) -> None:
    assert following.append(a=5, b=7) == {"a", "b"}
    assert (following.rows, following.version) == (["a", "b"], 1)
    assert following.table.versions(["a", "b", "c"]) == {"a": 5, "b": 7, "c": 0}
    # who is that far already is left out
    assert following.append(a=5, b=8, c=1) == {"b", "c"}
    assert (following.rows, following.asked[-1]) == (["a", "b", "b", "c"], {"b", "c"})
    assert following.append(a=4, b=8) == set()
    assert (following.version, len(following.asked)) == (2, 2)


def test_one_who_comes_in_between_is_not_added_a_second_time(
    plain: SparkSession, following: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel compares no application of several, but their domains; what another run has brought is left out then."""
    other = Following(plain, tmp_path)
    at_first(monkeypatch, following.table._table, "existing", lambda: other.append(a=5), after=True)
    assert following.append(a=5, b=7) == {"b"}
    assert following.rows == ["a", "b"]
    assert following.asked == [{"a", "b"}, {"b"}]


def test_whoever_appends_alone_is_compared_too(
    plain: SparkSession, following: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that bring the same, one as one of several."""
    following.append(a=5)
    other = Following(plain, tmp_path)
    assert not other.table.append("a", 5, lambda: other.files(["a"]))
    assert other.table.append("a", 6, lambda: other.files(["a"]))
    assert following.append(a=6, b=1) == {"b"}
    assert following.rows == ["a", "a", "b"]


def test_what_an_older_version_wrote_as_a_transaction_counts(plain: SparkSession, following: Following) -> None:
    table = KernelTable(plain, following.path)
    table.commit(table.existing(), transactions={"a": 5, "b": 5})
    assert following.append(a=5, b=6) == {"b"}
    assert following.append(a=5, b=6) == set()
    assert following.rows == ["b"]


def test_a_table_that_only_refuses_is_an_error(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelTable, "commit", Mock(side_effect=KernelConflict("always")))
    monkeypatch.setattr(commits, "ATTEMPTS", 2)
    with pytest.raises(ReplicaError, match="cannot be written"):
        following.append(a=5)
    assert following.asked == [{"a"}]


def test_each_epoch_is_there_once_also_number_0(plain: SparkSession, tmp_path: Path) -> None:
    path, first, second = str(tmp_path / "epochs"), Epoch(0, Offset(0)), Epoch(1, Offset(900))
    table = EpochsTable(plain, path)
    assert not table.append(BROKER_A, 0, ())
    assert table.append(BROKER_A, 0, (first,))
    assert not table.append(BROKER_A, 0, (first,))
    later = EpochsTable(plain, path)  # of the next run
    assert not later.append(BROKER_A, 0, (first,))
    assert later.append(BROKER_A, 0, (first, second))
    assert later.append(BROKER_A, 1, (first,))
    rows = DeltaTable(path).to_pyarrow_table(columns=["epoch", "number", "start"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(0, 0, 0), (0, 1, 900), (1, 0, 0)]
