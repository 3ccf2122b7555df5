"""A log of many records of 100 bytes, and its files, made fast."""

import functools

import pyarrow as pa

from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.tables import LOG, with_identity
from sources.offsets import Offset
from tests.sinks.memory_master import MemoryMaster, chunk_of

RECORD_BYTES = 100
MASTER = MemoryMaster((RECORD_BYTES,) * 20_000)


@functools.cache
def all_rows() -> pa.RecordBatch:
    """The whole log, as rows of the table."""
    return with_identity(LOG, MASTER.log_id, 0, chunk_of(MASTER.records()).records)


def file_of(folder: str, first: int, last: int) -> DataFile:
    """A file with records `first` to `last`."""
    with FileWriter(LOG, folder, new_name(Offset(first * RECORD_BYTES))) as writer:
        writer.write(all_rows().slice(first, last - first))
        return writer.finish()
