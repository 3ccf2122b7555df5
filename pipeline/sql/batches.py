"""A result as batches of Arrow, in order, one partition after the other.

Spark holds what tasks hand over in the driver's memory, a partition at a time and the next one, with every row of it.
So tasks pack their batches and compress them: what is held is about as large as the partition is in files. How large
partitions and batches are, the session says (`pipeline.sql.reader`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame


def arrow_batches(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Names of columns must have no dots."""
    packed = frame.mapInArrow(_packed, "batch BINARY")
    for row in packed.toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row[0]) as stream:
            yield from stream


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: each batch as one row."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
            stream.write_batch(batch)
        yield pa.record_batch({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
