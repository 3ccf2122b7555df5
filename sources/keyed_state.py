"""The contract of a keyed state: a map of texts that the records of a log make by setting and removing keys.

What a log says of a key is what the last record says that names it. So of any records, looked at in any order and any
number of times, the state is the newest change of each key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Change:
    """What the record `id` says of a key: its `value`, None where it removes the key.

    `id` is the master's own number of the record; it grows with the offsets.
    """

    id: int
    value: str | None


Changes = dict[str, Change]
"""The newest change of each key."""


@dataclass(frozen=True, slots=True)
class KeyedState:
    """How a log makes its map.

    `made_from` are the columns of RECORD_SCHEMA that `changes` needs. `changes` says what records, in the order of
    their offsets, do to the map; it raises CorruptRecord for a row that the master's `read` cannot have made.
    """

    made_from: tuple[str, ...]
    changes: Callable[[pa.RecordBatch], Changes]
