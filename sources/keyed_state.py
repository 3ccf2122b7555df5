"""The contract of a keyed state: a map of texts that the records of a log build by setting and removing keys.

The value of a key is what the last record that names it says. So the state that any records make, looked at in any
order and any number of times, is the newest change of each key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What the record `id` does to a key: it sets `value`, or removes the key if that is None.

    `id` is the master's own number of the record; it grows with the offsets.
    """

    id: int
    value: str | None


Changes = dict[str, KeyChange]
"""The newest change of each key."""


@dataclass(frozen=True, slots=True)
class KeyedState:
    """How a log builds its map.

    `made_from` are the columns of RECORD_SCHEMA that `changes` needs. `changes` returns what records, in the order of
    their offsets, do to the map; it raises CorruptRecord for a row that the master's `read` cannot have made.
    """

    made_from: tuple[str, ...]
    changes: Callable[[pa.RecordBatch], Changes]
