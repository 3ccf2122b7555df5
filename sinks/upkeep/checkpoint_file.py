"""Check a checkpoint of a Delta log: its Parquet file is complete, and has the state that its version's commit left.

A checkpoint names neither its version nor its table. But it has what the commit of its version did: the files that the
commit added, and none that it removed; the transaction versions and domain metadata that it wrote; its protocol and
metadata. (Delta protocol, "Checkpoints" and "Action Reconciliation".) A value that was overwritten and still decodes is
not noticed: Delta keeps no checksum of a checkpoint. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_KEYS: Final = {"add": "path", "remove": "path", "txn": "appId", "domainMetadata": "domain"}
_SAID: Final = {"txn": "version", "domainMetadata": "configuration", "protocol": "minWriterVersion", "metaData": "id"}
_ROWS_AT_ONCE: Final = 1024

_Found = dict[tuple[str, Any], Any]


def what_is_wrong(checkpoint: bytes, commit: bytes) -> str | None:
    """Why `checkpoint` is not that of the version that `commit`, a JSON file of the log, made; None if it is."""
    try:
        state = _state(checkpoint)
        done = _found(map(json.loads, filter(bytes.strip, commit.splitlines())))
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        return f"it cannot be read: {error}"
    for kind in ("protocol", "metaData"):
        if (kind, None) not in state:
            return f"it has no {kind}"
    for (kind, key), said in done.items():
        there = state.get((kind, key))
        if kind == "remove":
            if ("add", key) in state:
                return f"its commit removed the file {key}, which is in it"
        elif there != said and not (kind == "domainMetadata" and said is None):
            return f"its commit has {kind} {key or ''}: {said}, and it has {there}"
    return None


def _state(checkpoint: bytes) -> _Found:
    """The state in a checkpoint. Reads every column of every row, to find any that cannot be read."""
    with pq.ParquetFile(pa.BufferReader(checkpoint)) as parquet:
        names = [name for name in dict.fromkeys((*_KEYS, *_SAID)) if name in parquet.schema_arrow.names]
        rows = (row for batch in parquet.iter_batches(_ROWS_AT_ONCE) for row in batch.select(names).to_pylist())
        return _found(rows)


def _found(actions: Iterator[dict[str, Any]]) -> _Found:
    """The last action on each file, application and domain, the protocol and the table."""
    found: _Found = {}
    for action in actions:
        for kind, one in action.items():
            if one is None or kind not in (*_KEYS, *_SAID):
                continue
            said = None if one.get("removed") else one.get(_SAID.get(kind, "path"))
            found[kind, one[_KEYS[kind]] if kind in _KEYS else None] = said
    return found
