"""What KernelTable promises, held to the real one and to its stand-in in plain Python."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import newest
from sinks.delta.kernel import KernelConflict, KernelTable, Overlap
from sinks.tables import LEDGER, LOG, METADATA_TABLES
from sinks.warehouse import ensure_table, spark_schema
from sources.errors import ReplicaError
from tests.sinks.at_once import at_once
from tests.sinks.long_log import file_of
from tests.spans import span

A = {"log_id": "rocketmq/broker-a"}


@pytest.fixture(params=["plain", pytest.param("spark", marks=pytest.mark.spark)])
def either(request: pytest.FixtureRequest) -> SparkSession:
    found: SparkSession = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def table(either: SparkSession, tmp_path: Path) -> KernelTable:
    made = KernelTable(either, LOG.path(str(tmp_path)))
    ensure_table(made, LOG)
    return made


def named(name: str, **statistics: Any) -> DataFile:
    """A file that nobody opens."""
    return DataFile(name, 10, 1000, 1, json.dumps({"numRecords": 1, **statistics}))


def bounded(name: str, least: dict[str, Any], greatest: dict[str, Any]) -> DataFile:
    return named(name, minValues={**A, **least}, maxValues={**A, **greatest})


def paths(table: KernelTable, overlapping: Overlap | None = None, **equal: bool) -> set[str]:
    return {file.path for file in table.files(table.existing(), equal or A, overlapping)}


def actions(table: KernelTable, version: int) -> list[dict[str, Any]]:
    text = Path(f"{table.path}/_delta_log/{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


# --- versions


def test_without_a_table_there_is_no_version(either: SparkSession, tmp_path: Path) -> None:
    table = KernelTable(either, str(tmp_path / "none"))
    assert table.snapshot() is None
    with pytest.raises(ReplicaError, match="is gone") as caught:
        table.existing("rocketmq/a")
    assert caught.value.log == "rocketmq/a"


@pytest.mark.parametrize("spec", [LOG, METADATA_TABLES[0]], ids=lambda spec: spec.name)
def test_a_new_table_is_what_it_was_told_to_be(either: SparkSession, tmp_path: Path, spec: Any) -> None:
    table = KernelTable(either, spec.path(str(tmp_path)))
    table.create(spark_schema(spec.schema), spec.properties, spec.clustering, spec.partitioning)
    made = table.existing()
    told = {name: text for name, text in spec.properties.items() if not name.startswith("delta.feature.")}
    assert (made.version, json.loads(made.schema_json()), made.properties()) == (
        0, json.loads(spark_schema(spec.schema).json()), told,
    )  # fmt: skip
    assert [*made.domains()] == ([] if spec.partitioning else ["delta.clustering"])
    assert DeltaTable(table.path).metadata().partition_columns == list(spec.partitioning)
    with pytest.raises(KernelConflict):
        table.create(spark_schema(spec.schema), spec.properties, spec.clustering, spec.partitioning)


def test_of_several_that_create_it_one_does(either: SparkSession, tmp_path: Path) -> None:
    tables = [KernelTable(either, str(tmp_path / "t")) for _ in range(3)]

    def create(table: KernelTable) -> bool:
        try:
            table.create(spark_schema(LEDGER.schema), LEDGER.properties, LEDGER.clustering)
        except KernelConflict:
            return False
        return True

    assert sorted(at_once([partial(create, table) for table in tables])) == [False, False, True]


def test_a_table_keeps_its_id_and_no_other_has_it(either: SparkSession, tmp_path: Path, table: KernelTable) -> None:
    other = KernelTable(either, LEDGER.path(str(tmp_path)))
    ensure_table(other, LEDGER)
    before = table.existing().table_id()
    table.commit(table.existing(), domains={"place": "1"})
    assert table.existing().table_id() == before != other.existing().table_id()


def test_a_version_says_when_it_was_committed(table: KernelTable) -> None:
    table.commit(table.existing())
    file = Path(f"{table.path}/_delta_log/{1:020d}.json")
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    assert abs(table.existing().committed_at() - written) <= timedelta(milliseconds=1)


def test_each_version_can_be_had_again(table: KernelTable) -> None:
    for place in ("1", "2"):
        table.commit(table.existing(), [named(place)], transaction=("app", int(place)), domains={"place": place})
    old = table.snapshot_at(1)
    assert (old.version, old.domain("place"), old.transaction_version("app")) == (1, "1", 1)
    assert table.snapshot_at(0).domain("place") is None
    assert table.oldest_version(table.existing()) == 0
    with pytest.raises(ReplicaError):
        table.snapshot_at(3)


def test_a_table_that_was_restored_from_a_copy_is_what_it_is_now(
    either: SparkSession, table: KernelTable, tmp_path: Path
) -> None:
    table.commit(table.existing(), domains={"place": "1"})
    shutil.copytree(table.path, tmp_path / "copy")
    for place in ("2", "3"):
        table.commit(table.existing(), domains={"place": place})
    assert table.existing().version == 3
    for commits in (0, 2):  # a copy that lacks two commits, and one that has as many, but others
        shutil.rmtree(table.path)
        shutil.copytree(tmp_path / "copy", table.path)
        restored = KernelTable(either, table.path)
        for number in range(commits):
            restored.commit(restored.existing(), domains={"place": f"other {number}"})
        assert table.existing().version == 1 + commits
        assert table.existing().domain("place") == ("1", None, "other 1")[commits]
    shutil.rmtree(table.path)
    assert table.snapshot() is None


# --- one commit


def test_one_commit_carries_all_there_is(table: KernelTable) -> None:
    file = file_of(table.path, 0, 5)
    domains: dict[str, str | None] = {"place": '{"a": "ä\\n"}', "elsewhere": "2"}
    assert table.commit(table.existing(), [file], transaction=("app", 2**40), domains=domains) == 1
    found = table.existing()
    assert found.version == 1
    assert {name: found.domains()[name] for name in domains} == domains
    assert (found.domain("place"), found.domain("nowhere")) == (domains["place"], None)
    assert (found.transaction_version("app"), found.transaction_version("other")) == (2**40, None)
    (added,) = [action["add"] for action in actions(table, 1) if "add" in action]
    assert (added["path"], added["size"], added["dataChange"]) == (file.name, file.size_bytes, True)
    assert json.loads(added["stats"]) == json.loads(file.statistics)
    logged = newest(table.path)
    assert logged is not None
    assert (logged.domains(), [*logged.files]) == (found.domains(), [file.name])
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 5


# --- conflicts


@pytest.mark.parametrize("version", [6, 7, 8])
@pytest.mark.parametrize("is_stale", [False, True])
def test_a_transaction_version_only_grows(table: KernelTable, version: int, is_stale: bool) -> None:
    before = table.existing()
    table.commit(before, transaction=("app", 7))
    on = before if is_stale else table.existing()
    if version > 7:
        table.commit(on, transaction=("app", version))
    else:
        with pytest.raises(KernelConflict):
            table.commit(on, transaction=("app", version))
    assert table.existing().transaction_version("app") == max(version, 7)


def test_further_transactions_are_compared_with_nothing(table: KernelTable) -> None:
    before = table.existing()
    table.commit(before, transactions={"a": 7, "b": 7})
    table.commit(before, transactions={"a": 3}, transaction=("c", 1))
    found = table.existing()
    assert [found.transaction_version(name) for name in "abc"] == [3, 7, 1]


def test_properties_change_alone(table: KernelTable) -> None:
    """Who changes them sees all there is, and nobody commits over what they were."""
    before = table.existing()
    table.commit(before, domains={"place": "1"})
    with pytest.raises(KernelConflict):
        table.set_properties(before, {"delta.logRetentionDuration": "interval 9 days"})
    on = table.existing()
    assert table.set_properties(on, {"delta.logRetentionDuration": "interval 9 days"}) == 2
    found = table.existing()
    assert found.properties() == before.properties() | {"delta.logRetentionDuration": "interval 9 days"}
    assert (found.domains(), found.schema_json()) == (on.domains(), on.schema_json())
    with pytest.raises(KernelConflict):
        table.commit(on, [named("late")])
    with pytest.raises(KernelConflict):
        table.rearrange(on, [], [({}, named("late"))])


def test_a_schema_changes_alone(table: KernelTable) -> None:
    before = table.existing()
    evolved = spark_schema(LOG.schema).add("mood", "string")
    table.commit(before, [named("a", minValues=A, maxValues=A)])
    with pytest.raises(KernelConflict):
        table.replace(before, [], [], domains={}, schema=evolved, over_appends=True)
    on = table.existing()
    table.replace(on, [], [({}, named("b", minValues=A, maxValues=A))], domains={"place": "1"}, schema=evolved)
    found = table.existing()
    assert json.loads(found.schema_json()) == json.loads(evolved.json())
    assert (paths(table), found.domain("place"), found.properties()) == ({"a", "b"}, "1", before.properties())
    with pytest.raises(KernelConflict):
        table.commit(on)


def test_an_exchange_steps_over_appends_only_where_it_may(table: KernelTable) -> None:
    table.commit(table.existing(), [file_of(table.path, 0, 5)])
    old = table.existing()
    files = table.files(old, A)
    table.commit(table.existing(), [file_of(table.path, 5, 10)], domains={"stream": "1"})
    with pytest.raises(KernelConflict):
        table.replace(old, files, [], domains={"place": "1"})
    table.replace(old, files, [], domains={"place": "1"}, over_appends=True)
    assert len(paths(table)) == 1
    assert (table.existing().domain("stream"), table.existing().domain("place")) == ("1", "1")
    with pytest.raises(KernelConflict):  # somebody removed them
        table.replace(old, files, [], domains={}, over_appends=True)
    with pytest.raises(KernelConflict):  # somebody wrote the domain
        table.replace(old, [], [], domains={"place": "2"}, over_appends=True)


def test_what_is_rearranged_is_no_change_and_may_not_be_gone(table: KernelTable) -> None:
    table.commit(table.existing(), [file_of(table.path, 0, 5), file_of(table.path, 5, 10)])
    old = table.existing()
    files, whole = table.files(old, A), file_of(table.path, 0, 10)
    table.commit(old, [file_of(table.path, 10, 11)])
    version = table.rearrange(old, files, [({}, whole)])
    assert whole.name in paths(table)
    assert len(paths(table)) == 2
    kinds = [(kind, said["dataChange"]) for action in actions(table, version)[1:] for kind, said in action.items()]
    assert kinds == [("remove", False), ("remove", False), ("add", False)]
    with pytest.raises(KernelConflict):
        table.rearrange(old, files[:1], [])


def test_what_is_removed_leaves_no_statistics_behind(table: KernelTable) -> None:
    table.commit(table.existing(), [file_of(table.path, 0, 5)])
    old = table.existing()
    version = table.replace(old, table.files(old, A), [], domains={})
    (removed,) = [action["remove"] for action in actions(table, version) if "remove" in action]
    assert removed["dataChange"] is True
    assert "stats" not in removed


def test_who_commits_at_once_has_a_version_of_his_own(either: SparkSession, table: KernelTable) -> None:
    """A race: on a local disk two commits at once once broke a version's checksum."""

    def run(name: str) -> list[int]:
        own = KernelTable(either, table.path)
        versions = [own.commit(own.existing(), domains={name: str(number)}) for number in range(4)]
        assert own.existing().domain(name) == "3"
        return versions

    versions = at_once([partial(run, name) for name in "abc"])
    assert sorted(version for own in versions for version in own) == list(range(1, 13))
    assert [table.existing().domain(name) for name in "abc"] == ["3", "3", "3"]


# --- which files


FOUND = {(0, 50): {"a"}, (99, 100): {"a"}, (100, 101): {"b"}, (50, 150): {"a", "b"}, (300, 400): set[str]()}


def test_files_are_found_by_the_bounds_of_a_column(table: KernelTable) -> None:
    files = [bounded("a", {"offset": 0}, {"offset": 99}), bounded("b", {"offset": 100}, {"offset": 299})]
    table.commit(table.existing(), [*files, named("unknown")])
    for wanted, found in FOUND.items():
        assert paths(table, Overlap(span(*wanted), "offset")) == {*found, "unknown"}


def test_files_are_found_by_the_bounds_of_a_start_and_an_end(either: SparkSession, tmp_path: Path) -> None:
    table = KernelTable(either, LEDGER.path(str(tmp_path)))
    ensure_table(table, LEDGER)
    ends = {"a": {"start": 0, "end": 100}, "b": {"start": 100, "end": 300}}
    table.commit(table.existing(), [bounded(name, both, both) for name, both in ends.items()])
    for wanted, found in FOUND.items():
        assert paths(table, Overlap(span(*wanted), "start", "end")) == found


def test_files_are_found_by_the_bounds_of_a_text(table: KernelTable) -> None:
    whole = bounded("whole", {}, {})
    other = named("other", minValues={"log_id": "rocketmq/b"}, maxValues={"log_id": "rocketmq/b"})
    several = named("several", minValues={"log_id": "a"}, maxValues={"log_id": "z"})
    table.commit(table.existing(), [whole, other, several, named("unknown")])
    assert paths(table) == {"whole", "several", "unknown"}


def test_files_are_found_by_their_partition(either: SparkSession, tmp_path: Path) -> None:
    spec = METADATA_TABLES[0]
    table = KernelTable(either, spec.path(str(tmp_path)))
    ensure_table(table, spec)
    added = [({**A, "is_current": is_current}, named(f"a {is_current}")) for is_current in (True, False)]
    table.replace(table.existing(), [], [*added, ({"log_id": "b", "is_current": True}, named("b"))], domains={})
    assert paths(table, is_current=True) == {"a True", "b"}
    assert paths(table, is_current=False) == {"a False"}
    (file,) = table.files(table.existing(), {**A, "is_current": False})
    assert file.partition() == {**A, "is_current": "false"}
    assert (file.size_bytes, file.modified_ms, file.statistics()) == (10, 1000, {"numRecords": 1})
