"""Table dister_kv in step with its log: the map, what a batch changes, scenario 44, and what is refused."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelConflict
from sinks.healing.repair import Repair
from sinks.history.key_map import BUCKETS, ENTRIES_SCHEMA, bucket_of, by_bucket, merged
from sinks.history.key_values import KeyValues, MapPosition
from sinks.upkeep.retention import Keep, ReplicaRetention
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset
from sources.records import Changes, KeyChange
from tests.dister.odd_leader import OddLog
from tests.sinks.dister_logs import bring, entries, follow, live, log_of, replayed, table

TEST = LogId("dister", "test")


def position(plain: SparkSession, lake: Path) -> MapPosition | None:
    view = KeyValues(plain, str(lake), TEST).look()
    return None if view is None else view.position


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[OddLog]:
    with OddLog(tmp_path / "leader") as writer:
        yield writer


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_44_after_a_repair_the_map_is_that_of_the_log_that_is_left(
    plain: SparkSession, lake: Path, leader: OddLog
) -> None:
    """DI-88."""
    leader.set({"kept": "1", "removed": "1", "overwritten": "1"}, rnd=7)
    bring(plain, lake, leader)
    leader.set({"overwritten": "2", "dirty": "2"}, rnd=1)
    leader.remove(["removed"], rnd=1)
    bring(plain, lake, leader)
    assert live(lake) == {"kept": "1", "overwritten": "2", "dirty": "2"}

    leader.truncate_to(10007)
    leader.set({"new": "3"}, rnd=2)
    Repair(plain, str(lake), log_of(leader)).run()
    before = table(lake).version()
    assert follow(plain, lake, leader)
    assert table(lake).version() == before + 1
    assert entries(lake) == dict.fromkeys(("kept", "removed", "overwritten"), ("1", 10007, False))
    assert table(lake).to_pyarrow_table(columns=["epoch"])["epoch"].unique().to_pylist() == [1]

    bring(plain, lake, leader)
    assert live(lake) == replayed(leader) == {"kept": "1", "removed": "1", "overwritten": "1", "new": "3"}
    assert position(plain, lake) == MapPosition(epoch=1, offset=Offset(40003))


def test_only_the_buckets_that_change_are_written_anew(plain: SparkSession, lake: Path, leader: OddLog) -> None:
    leader.set({f"key-{number}": "1" for number in range(100)}, rnd=7)
    bring(plain, lake, leader)
    before = set(table(lake).file_uris())
    leader.set({"key-7": "2"}, rnd=1)
    bring(plain, lake, leader)
    gone = before - set(table(lake).file_uris())
    assert [f"part-{bucket_of('key-7')}-" in name for name in gone] == [True]
    assert live(lake) == replayed(leader)


def test_a_table_that_is_ahead_of_the_log_is_refused(plain: SparkSession, lake: Path, leader: OddLog) -> None:
    leader.set({"a": "1"}, rnd=7)
    bring(plain, lake, leader)
    map_of = KeyValues(plain, str(lake), TEST)
    view = map_of.look()
    assert view is not None
    map_of.exchange(view, {}, MapPosition(0, Offset(20008)), anew=False)
    with pytest.raises(ReplicaError, match=r"dister/test at offset 10008: .*ahead.*found epoch 0, offset 20008"):
        follow(plain, lake, leader)


def test_of_two_that_change_one_map_the_second_is_refused(plain: SparkSession, lake: Path) -> None:
    one, other = KeyValues(plain, str(lake), TEST), KeyValues(plain, str(lake), LogId("dister", "other"))
    one.ensure()
    view = one.look()
    assert view is not None
    other.exchange(view, {"a": KeyChange(1, "other's")}, MapPosition(0, Offset(2)), anew=True)
    one.exchange(view, {"a": KeyChange(1, "1")}, MapPosition(0, Offset(2)), anew=True)
    with pytest.raises(KernelConflict):
        one.exchange(view, {"a": KeyChange(2, "2")}, MapPosition(0, Offset(3)), anew=False)
    assert live(lake) == {"a": "1"}
    assert live(lake, "other") == {"a": "other's"}


def test_what_retention_deleted_is_not_replayed_as_if_it_had_never_been(
    plain: SparkSession, lake: Path, leader: OddLog
) -> None:
    leader.set({"a": "1"}, rnd=7)
    bring(plain, lake, leader)
    leader.set({"b": "1"}, rnd=1)
    bring(plain, lake, leader)
    retention, now = ReplicaRetention(plain, str(lake), TEST), datetime.now(UTC)
    retention.apply(retention.plan(Keep(size_bytes=1), now), now)
    leader.set({"b": "2"}, rnd=1)
    bring(plain, lake, leader)
    assert live(lake) == replayed(leader) == {"a": "1", "b": "2"}

    shutil.rmtree(lake / "dister_kv")
    with pytest.raises(
        ReplicaError, match=r"dister/test at offset 0: .*none in \[0, 10008\).*logtwin backfill --from 0"
    ):
        follow(plain, lake, leader)


NOTHING = ENTRIES_SCHEMA.empty_table()


def test_a_change_that_is_older_or_there_already_changes_nothing() -> None:
    entries = merged(NOTHING, {"a": KeyChange(3, None)})
    assert merged(entries, {"a": KeyChange(3, None)}) is None
    assert merged(entries, {"a": KeyChange(2, "an older set does not bring it back")}) is None


def test_the_bucket_of_a_key_is_by_its_crc_32_and_has_every_change_of_it() -> None:
    assert bucket_of("ключ") == f"{crc32('ключ'.encode()) % BUCKETS:02d}"
    changes = {f"key-{number}": KeyChange(number, "") for number in range(1000)}
    parts = by_bucket(changes)
    assert len(parts) == BUCKETS
    assert {key: change for part in parts.values() for key, change in part.items()} == changes
    assert all(bucket_of(key) == bucket for bucket, part in parts.items() for key in part)


CHANGES = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(KeyChange, st.integers(1, 9), st.none() | st.text(max_size=2)), max_size=4
)


@given(st.lists(CHANGES, max_size=8))
def test_the_map_is_the_newest_change_of_each_key_in_whatever_order_they_come(batches: list[Changes]) -> None:
    newest: Changes = {}
    entries = NOTHING
    for batch in batches:
        newest |= {key: change for key, change in batch.items() if change.id > newest.get(key, KeyChange(-1, None)).id}
        after = merged(entries, batch)
        entries = entries if after is None else after
    found = {row["key"]: (row["value"], row["id"], row["deleted"]) for row in entries.to_pylist()}
    assert found == {key: (one.value, one.id, one.value is None) for key, one in newest.items()}
