"""What of Delta Kernel no stand-in has: hooks, checkpoints, checksums, syncs, and what is known without a look."""

import errno
import json
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sinks.delta import kernel, version_files
from sinks.delta.hooks import wait_for_checkpoints
from sinks.delta.java_names import java_names
from sinks.delta.kernel import KernelTable
from sinks.delta.version_files import VersionFiles
from sinks.tables import LOG
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from tests.sinks.long_log import file_of

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> KernelTable:
    ensure_tables(spark, str(tmp_path))
    return KernelTable(spark, LOG.path(str(tmp_path)))


def test_a_checkpoint_is_written_once_by_the_hook_or_when_told_to(table: KernelTable) -> None:
    def checkpoints() -> list[str]:
        return sorted(path.name for path in Path(f"{table.path}/_delta_log").glob("*.checkpoint.parquet"))

    for number in range(10):
        table.commit(table.existing(), transaction=("app", number + 1))
    assert not table.checkpoint(table.existing())  # the hook does it
    assert checkpoints() == []
    for _ in range(2):
        table.run_hooks()
    assert checkpoints() == [f"{10:020d}.checkpoint.parquet"]
    table.commit(table.existing(), transaction=("app", 11))
    assert [table.checkpoint(table.existing()) for _ in range(2)] == [True, False]
    assert checkpoints() == [f"{at:020d}.checkpoint.parquet" for at in (10, 11)]
    assert table.existing().transaction_version("app") == 11


def checksummed(table: KernelTable) -> list[int]:
    return sorted(int(path.stem) for path in Path(f"{table.path}/_delta_log").glob("0*.crc"))


def test_each_version_of_a_run_that_is_alone_has_its_checksum(table: KernelTable) -> None:
    for number in range(3):
        table.commit(table.existing(), transaction=("app", number + 1))
        table.run_hooks()
    assert checksummed(table) == [0, 1, 2, 3]


def test_a_checksum_from_all_files_comes_with_a_checkpoint_only(spark: SparkSession, table: KernelTable) -> None:
    tables = (table, KernelTable(spark, table.path))
    for number in range(10):  # each version by another run, and no checksum before the next one
        one = tables[number % 2]
        one.commit(one.existing(), [file_of(table.path, number, number + 1)], transaction=(f"app-{number % 2}", number))
    for one in tables:
        one.run_hooks()
    assert checksummed(table) == [0, 1, 10]
    written = json.loads(Path(f"{table.path}/_delta_log/{10:020d}.crc").read_text())
    assert written["numFiles"] == 10


def test_a_table_of_many_logs_has_no_checksums_and_is_listed_after_each_checkpoint(table: KernelTable) -> None:
    """Kernel takes time by the square of the domains for a checksum."""
    domains = {f"logtwin.{number}": "{}" for number in range(101)}
    table.commit(table.existing(), domains=domains)
    for number in range(2, 11):
        table.run_hooks()
        assert table.existing() is table.existing()
        table.commit(table.existing(), domains={"logtwin.0": str(number)})
    own = table.existing()
    table.run_hooks(checkpoint_aside=True)
    assert wait_for_checkpoints(60)
    assert checksummed(table) == [0]
    assert Path(f"{table.path}/_delta_log/{10:020d}.checkpoint.parquet").exists()
    found = table.existing()
    assert found is not own
    assert (found.version, found.domains()) == (10, {**own.domains(), **domains, "logtwin.0": "10"})


def test_transaction_versions_of_many_are_those_of_each(table: KernelTable) -> None:
    names = [f"app-{number}" for number in range(30)]
    for number in range(12):
        table.commit(table.existing(), transactions=dict.fromkeys(names[number:], number))
        table.run_hooks()
    on = table.existing()
    wanted = [*names, "another"]
    expected = {name: on.transaction_version(name) for name in wanted}
    assert expected == {**{name: min(number, 11) for number, name in enumerate(names)}, "another": None}
    assert table.transaction_versions(on, wanted) == expected
    assert table.transaction_versions(on, wanted[:3]) == {name: expected[name] for name in wanted[:3]}


def test_transactions_of_a_log_that_only_kernel_reads_are_asked_for(
    table: KernelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "transactions_at", Mock(side_effect=ReplicaError("the Delta log is in another form")))
    names = [f"app-{number}" for number in range(20)]
    table.commit(table.existing(), transactions=dict.fromkeys(names, 7))
    assert table.transaction_versions(table.existing(), names) == dict.fromkeys(names, 7)


def test_versions_on_a_local_disk_are_renamed_without_processes(spark: SparkSession) -> None:
    jvm = cast(Any, spark._jvm)
    stores = jvm.io.delta.kernel.defaults.internal.logstore.LogStoreProvider
    store = stores.getLogStore(spark._jsc.hadoopConfiguration(), "file")
    assert store.getClass().getSimpleName() == "LocalLogStore"  # the other one, HDFSLogStore, asks readlink each time


def test_a_commit_is_synced_before_anybody_hears_of_it(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(version_files, "sync", lambda path: synced.append(path.name))
    table.commit(table.existing(), transaction=("app", 1))
    assert synced[0] == f"{1:020d}.json"
    assert synced[-1] == "_delta_log"


def test_after_a_commit_of_its_own_the_log_is_not_listed_again(table: KernelTable) -> None:
    """The same snapshot, and it says what a table that is opened anew says."""
    rows = [file_of(table.path, first, first + 5) for first in (0, 5)]
    table.commit(table.existing(), rows[:1], transaction=("app", 1), domains={"place": "1"})
    table.commit(table.existing(), rows[1:], transaction=("app", 2), domains={"place": "2"})
    known = table.existing()
    assert table.existing() is known
    opened = KernelTable(SparkSession.active(), table.path).existing()
    assert opened is not known
    assert known.version == opened.version == 2
    assert known.domains() == opened.domains()
    assert known.domain("place") == "2"
    assert known.transaction_version("app") == opened.transaction_version("app") == 2
    assert sorted(file.path for file in table.files(known, {"log_id": "rocketmq/broker-a"})) == sorted(
        row.name for row in rows
    )


def test_the_log_is_listed_now_and_then(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that was made from memory again and again would read all those commits at each look."""
    monkeypatch.setattr(kernel, "_LISTED_EVERY", 3)
    known = []
    for number in range(8):
        table.commit(table.existing(), transaction=("app", number + 1))
        known.append(table.existing() is table.existing())
        assert table.existing().transaction_version("app") == number + 1
    assert known == [True, True, True, False, True, True, True, False]


def test_a_commit_of_long_ago_is_not_trusted(table: KernelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.commit(table.existing(), domains={"place": "1"})
    known = table.existing()
    monkeypatch.setattr(kernel, "_TRUSTED_S", 0.0)
    assert table.existing() is not known
    assert table.existing().domain("place") == "1"


@pytest.mark.parametrize("refused", [OSError(errno.EIO, "Input/output error"), Py4JError("the gateway is gone")])
def test_a_commit_that_landed_stands_though_it_cannot_be_noted(
    table: KernelTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: Exception
) -> None:
    """What is newest is then asked of the Delta log, until a commit is noted again."""
    other = KernelTable(SparkSession.active(), table.path)
    table.commit(table.existing(), domains={"place": "1"})
    on = table.existing()
    with monkeypatch.context() as broken:
        broken.setattr(VersionFiles, "stamp", Mock(side_effect=refused))
        assert table.commit(on, domains={"place": "2"}) == 2
        assert table.existing() is not table.existing()
    assert repr(refused) in caplog.text
    assert (table.existing().version, table.existing().domain("place")) == (2, "2")
    other.commit(other.existing(), domains={"place": "3"})
    assert table.existing().domain("place") == "3"
    assert table.commit(table.existing(), domains={"place": "4"}) == 4
    assert table.existing() is table.existing()


def test_a_broken_table_is_the_replicas_failure(table: KernelTable) -> None:
    for path in Path(f"{table.path}/_delta_log").iterdir():
        if path.is_file():
            path.unlink()
    Path(f"{table.path}/_delta_log/{0:020d}.json").write_text('{"protocol": 7}')
    with pytest.raises(ReplicaError, match="Delta Kernel failed") as caught:
        table.snapshot()
    assert caught.value.hint


def test_packages_and_classes_are_what_py4j_has(spark: SparkSession) -> None:
    names = java_names(spark)
    assert names.java.util is names.java.util
    assert names.java.util.ArrayList is names.java.util.ArrayList
    assert names.java.lang.Integer.parseInt("7") == 7
    assert java_names(spark) is names
