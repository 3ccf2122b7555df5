"""Check a checkpoint of a Delta log: its Parquet file is complete, and has the state that its version's commit left.

A value that was overwritten and still decodes is not noticed: Delta keeps no checksum of a checkpoint. Pure.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.delta.log_checks import KINDS, State, actions_of, disagreement, state_of

_ROWS_AT_ONCE: Final = 1024


def what_is_wrong(checkpoint: bytes, commit: bytes) -> str | None:
    """Why `checkpoint` is not that of the version that `commit`, a JSON file of the log, made; None if it is."""
    try:
        state = _state(checkpoint)
        done = state_of(actions_of(commit))
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        return f"it cannot be read: {error}"
    return disagreement(done, state.get)


def _state(checkpoint: bytes) -> State:
    """The state in a checkpoint. Reads every column of every row, to find any that cannot be read."""
    with pq.ParquetFile(pa.BufferReader(checkpoint)) as parquet:
        names = [name for name in KINDS if name in parquet.schema_arrow.names]
        rows = (row for batch in parquet.iter_batches(_ROWS_AT_ONCE) for row in batch.select(names).to_pylist())
        return state_of(rows)
