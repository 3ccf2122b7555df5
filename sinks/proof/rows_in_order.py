"""Take the rows of a log range by range, as they are read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from sources.offsets import Offset


class RowsInOrder:
    """Batches in the order of their offsets, cut where ranges end."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def below(self, end: Offset) -> Iterator[pa.RecordBatch]:
        """Take the rows that start before `end` and were not taken yet."""
        while (batch := self._next()) is not None:
            count = int(np.searchsorted(batch.column("offset").to_numpy(), end))
            if count < batch.num_rows:
                self._rest = batch.slice(count)
            if count:
                yield batch.slice(0, count)
            if count < batch.num_rows:
                return

    def _next(self) -> pa.RecordBatch | None:
        batch, self._rest = self._rest, None
        return next(self._batches, None) if batch is None else batch
