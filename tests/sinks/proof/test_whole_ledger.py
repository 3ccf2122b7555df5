"""The ledger read whole: from statistics where a file has one row, from the file where it has more."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sinks.books.ledger import Ledger, app_id
from sinks.delta.files import FileWriter
from sinks.delta.kernel import KernelTable
from sinks.proof.completeness import COLUMNS
from sinks.proof.whole_ledger import Owed, read_ledger, stored_through_us
from sinks.tables import LEDGER, LEDGER_SCHEMA
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position
from tests.sinks.accounts import ledger_row
from tests.sinks.merged import merge_all

LOG = LogId("rocketmq", "a" * 30)
LONGER = LogId("rocketmq", "a" * 31)  # statistics cut both ids to the same 32 characters
SHORT = LogId("rocketmq", "a")
NOON_US = 1_769_860_800_123_000


def row(start: int, end: int, stored_us: int | None = NOON_US, deleted_at: int | None = None) -> LedgerRow:
    last_us = None if stored_us is None else stored_us + 1000
    return ledger_row(start, end, first_store_timestamp=stored_us, last_store_timestamp=last_us, deleted_at=deleted_at)


def as_tuple(one: LedgerRow) -> tuple[int | None, ...]:
    values = one.as_dict()
    return tuple(values[name] for name in COLUMNS)


def found(warehouse: Path, owed: Sequence[Owed] = (), log: LogId = LOG) -> list[tuple[int, ...]]:
    table = read_ledger(str(warehouse), log, owed)
    assert table.schema == pa.schema([LEDGER_SCHEMA.field(name) for name in COLUMNS]).remove_metadata()
    return sorted(zip(*(column.cast(pa.int64()).to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def warehouse(plain: SparkSession, tmp_path: Path) -> Path:
    ensure_tables(plain, str(tmp_path))
    return tmp_path


def test_one_row_or_several_a_file_and_rows_that_are_deleted(plain: SparkSession, warehouse: Path) -> None:
    ledger = Ledger(plain, LEDGER.path(str(warehouse)))
    mine = [row(0, 10), row(10, 20, None), row(20, 30, deleted_at=7000), row(30, 40), row(40, 50, None)]
    for one in mine[:3]:
        ledger.append_each({Position(LOG, 0, one.end): [one]})
        ledger.append_each({Position(SHORT, 0, one.end): [one]})
    ledger.append_each({Position(LOG, 0, mine[-1].end): mine[3:]})
    ledger.append_each({Position(LONGER, 0, Offset(70)): [row(60, 70)]})
    ledger.append_each({Position(LogId("rocketmq", "b"), 0, Offset(90)): [row(80, 90)]})
    for _ in range(2):
        for log, rows in ((LOG, mine), (SHORT, mine[:3]), (LONGER, [row(60, 70)])):
            assert found(warehouse, log=log) == [as_tuple(one) for one in rows]
        # files of several logs, as maintenance leaves them
        merge_all(KernelTable(plain, LEDGER.path(str(warehouse))), LEDGER)


def test_what_is_owed_counts_until_it_is_there(plain: SparkSession, warehouse: Path) -> None:
    position = Position(LOG, 0, Offset(10))
    owed = Owed(app_id(position), position.offset, [row(0, 5), row(5, 10)])
    expected = [as_tuple(one) for one in owed.rows]
    assert found(warehouse, [owed]) == expected
    Ledger(plain, LEDGER.path(str(warehouse))).append_each({position: owed.rows})
    assert found(warehouse, [owed]) == expected
    assert found(warehouse) == expected


def test_a_file_of_one_row_is_not_opened_and_one_of_more_is_an_error_if_it_is_gone(
    plain: SparkSession, warehouse: Path
) -> None:
    path = LEDGER.path(str(warehouse))
    for log, rows in ((SHORT, [row(0, 10)]), (LOG, [row(0, 5), row(5, 10)])):
        Ledger(plain, path).append_each({Position(log, 0, Offset(10)): rows})
    for file in Path(path).glob("*.parquet"):
        file.unlink()
    assert found(warehouse, log=SHORT) == [as_tuple(row(0, 10))]
    with pytest.raises(ReplicaError, match="ledger cannot be read"):
        found(warehouse)


def test_a_file_without_statistics_is_opened(plain: SparkSession, warehouse: Path) -> None:
    table = KernelTable(plain, LEDGER.path(str(warehouse)))
    values = {"log_id": str(LOG), "epoch": 0, **row(0, 10).as_dict()}
    with FileWriter(LEDGER, table.path, "part-bare.zstd.parquet") as writer:
        writer.write(pa.RecordBatch.from_pylist([values], schema=LEDGER_SCHEMA.remove_metadata()))
        file = writer.finish()
    table.commit(table.existing(), [replace(file, statistics='{"numRecords":1}')])
    assert found(warehouse) == [as_tuple(row(0, 10))]


def test_through_which_time_it_tells() -> None:
    rows = [row(0, 10), row(10, 20, NOON_US + 5_000_000), row(20, 30, None), row(30, 40, NOON_US + 9_000_000)]
    ledger = pa.table({name: [one.as_dict()[name] for one in rows] for name in COLUMNS})
    through = {
        (start, end): stored_through_us(ledger, OffsetRange(Offset(start), Offset(end)))
        for start, end in ((0, 40), (0, 39), (0, 30), (0, 19), (0, 9), (20, 30))
    }
    assert through == {
        (0, 40): NOON_US + 9_001_000,
        (0, 39): NOON_US + 5_001_000,
        (0, 30): NOON_US + 5_001_000,
        (0, 19): NOON_US + 1000,
        (0, 9): None,
        (20, 30): None,
    }
