"""The quarantine is looked at by offset."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sinks.books.quarantine import Quarantined, quarantined
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.tables import QUARANTINE
from sinks.warehouse import ensure_table
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange

BROKER_A, BROKER_B = LogId("rocketmq", "broker-a"), LogId("rocketmq", "broker-b")


def put(plain: SparkSession, warehouse: Path, log_id: LogId, *pieces: tuple[int, bytes]) -> None:
    """One commit of `pieces`, (offset, bytes)."""
    table = KernelTable(plain, str(warehouse / "quarantine"))
    ensure_table(table, QUARANTINE)
    rows = [
        {"log_id": str(log_id), "epoch": 0, "offset": at, "end": at + len(data), "condition": "undecodable",
         "cause": f"no record at {at}", "bytes": data}
        for at, data in pieces
    ]  # fmt: skip
    with FileWriter(QUARANTINE, table.path, new_name(Offset(pieces[0][0]))) as writer:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.schema.remove_metadata()))
        file = writer.finish()
    table.commit(table.existing(), [file])


def found(warehouse: Path, start: int, end: int) -> list[Quarantined]:
    return quarantined(str(warehouse), BROKER_A, OffsetRange(Offset(start), Offset(end)), head_bytes=4)


def test_the_pieces_that_reach_into_the_range_are_found(plain: SparkSession, tmp_path: Path) -> None:
    assert found(tmp_path, 0, 100) == []  # there is no quarantine yet
    put(plain, tmp_path, BROKER_A, (300, b"later"), (400, b"last"))
    put(plain, tmp_path, BROKER_A, (100, b"first piece"))
    put(plain, tmp_path, BROKER_B, (100, b"another log"))
    first = Quarantined(OffsetRange(Offset(100), Offset(111)), "no record at 100", b"firs")
    later = Quarantined(OffsetRange(Offset(300), Offset(305)), "no record at 300", b"late")
    assert found(tmp_path, 110, 301) == [first, later]
    assert found(tmp_path, 111, 300) == []


def test_a_file_that_cannot_be_read_is_named(plain: SparkSession, tmp_path: Path) -> None:
    put(plain, tmp_path, BROKER_A, (100, b"first piece"))
    (file,) = (tmp_path / "quarantine").glob("*.parquet")
    file.write_bytes(b"not Parquet")
    with pytest.raises(ReplicaError, match=file.name):
        found(tmp_path, 0, 200)
