"""The map in memory: the newest change of each key, in whatever order they come."""

from zlib import crc32

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sinks.history.key_map import BUCKETS, ENTRIES_SCHEMA, bucket_of, by_bucket, merged
from sources.records import Changes, KeyChange

NOTHING = ENTRIES_SCHEMA.empty_table()


def rows(entries: pa.Table | None) -> dict[str, tuple[str | None, int, bool]]:
    assert entries is not None
    return {row["key"]: (row["value"], row["id"], row["deleted"]) for row in entries.to_pylist()}


def test_a_change_that_is_older_or_there_already_changes_nothing() -> None:
    entries = merged(NOTHING, {"a": KeyChange(3, None)})
    assert merged(entries, {"a": KeyChange(3, None)}) is None
    assert merged(entries, {"a": KeyChange(2, "an older set does not bring it back")}) is None


def test_the_bucket_of_a_key_is_by_its_crc_32_of_utf_8() -> None:
    assert bucket_of("ключ") == f"{crc32('ключ'.encode()) % BUCKETS:02d}"


def test_every_change_is_in_the_bucket_of_its_key_alone() -> None:
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
    assert rows(entries) == {key: (one.value, one.id, one.value is None) for key, one in newest.items()}
