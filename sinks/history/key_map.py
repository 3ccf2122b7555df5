"""A map of keys to their newest changes, as Arrow tables: one for each bucket of keys. Pure.

The newest change of a key is the one with the greatest id, so it does not matter in which order, or how often, changes
are applied. A removed key keeps its row, so that a change with a lower id is recognized as too old.
"""

from __future__ import annotations

from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from sinks.tables import KEY_VALUES
from sources.records import Changes

BUCKETS = 16
"""The number of buckets; each is a file. A batch that changes few keys rewrites few of them, but many small files would
be slow to read.
"""

ENTRIES_SCHEMA = pa.schema(
    [KEY_VALUES.schema.field(name) for name in ("key", "value", "id", "deleted")]
).remove_metadata()


def bucket_of(key: str) -> str:
    return f"{crc32(key.encode()) % BUCKETS:02d}"


def by_bucket(changes: Changes) -> dict[str, Changes]:
    """Group the changes by bucket."""
    parts: dict[str, Changes] = {}
    for key, change in changes.items():
        parts.setdefault(bucket_of(key), {})[key] = change
    return parts


def merged(entries: pa.Table, changes: Changes) -> pa.Table | None:
    """Apply `changes` to `entries` (ENTRIES_SCHEMA); None if all of them are older than what is there."""
    touched = entries.filter(_names(entries, changes))
    known = dict(zip(touched["key"].to_pylist(), touched["id"].to_pylist(), strict=True))
    newer = {key: change for key, change in changes.items() if change.id > known.get(key, -1)}
    if not newer:
        return None
    return pa.concat_tables([entries.filter(pc.invert(_names(entries, newer))), _rows(newer)])


def _names(entries: pa.Table, changes: Changes) -> pa.ChunkedArray:
    return pc.is_in(entries["key"], value_set=pa.array(list(changes), pa.string()))


def _rows(changes: Changes) -> pa.Table:
    values = [change.value for change in changes.values()]
    columns = [list(changes), values, [change.id for change in changes.values()], [value is None for value in values]]
    return pa.table(columns, schema=ENTRIES_SCHEMA)
