"""Rows of a replica come back in the order of their offsets, however its files lie."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.proof import stored
from sinks.proof.stored import Part
from sinks.tables import LOG
from sources.errors import ReplicaError
from sources.offsets import LogId, OffsetRange
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import BROKER_A, SCHEMA, MemoryMaster
from tests.sinks.merged import merge_all
from tests.spans import span

MASTER = MemoryMaster((100,) * 40)  # one record at each hundred, 0 to 3900
ROWS = MASTER.records()
BROKER_B = LogId("rocketmq", "broker-b")


def rows_of(log_id: LogId, numbers: Sequence[int]) -> pa.RecordBatch:
    rows = [{"log_id": str(log_id), "epoch": 0, **ROWS[number]} for number in numbers]
    return pa.RecordBatch.from_pylist(rows, schema=LOG.schema.remove_metadata())


def part(folder: Path, *groups: pa.RecordBatch) -> Part:
    """A file of these row groups, with its statistics."""
    offsets = [offset for group in groups for offset in group.column("offset").to_pylist()]
    with FileWriter(LOG, str(folder), new_name(offsets[0])) as writer:
        for group in groups:
            writer.write(group)
        file = writer.finish()
    return Part(file.name, span(min(offsets), max(offsets) + 1), file.records, file.size_bytes)


def found(folder: Path, parts: Sequence[Part], wanted: OffsetRange, log_id: LogId = BROKER_A) -> list[int]:
    return [
        row["offset"] // 100 for batch in stored.read(str(folder), parts, log_id, wanted) for row in batch.to_pylist()
    ]


def test_only_the_columns_asked_for(tmp_path: Path) -> None:
    one = part(tmp_path, rows_of(BROKER_A, range(40)))
    (batch,) = stored.read(str(tmp_path), [one], BROKER_A, span(0, 4000), columns=("offset", "body"))
    assert batch.schema.names == ["offset", "body"]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (span(0, 4000), range(40)),
        (span(1000, 2000), range(10, 20)),  # the end is not in it
        (span(1001, 2001), range(11, 21)),  # a record belongs where it starts
        (span(1501, 1600), ()),
        (span(4000, 5000), ()),
        (span(700, 700), ()),
    ],
)
def test_a_range_of_several_files(tmp_path: Path, wanted: OffsetRange, numbers: Sequence[int]) -> None:
    first = part(tmp_path, rows_of(BROKER_A, range(7)), rows_of(BROKER_A, range(7, 15)))
    second = part(tmp_path, rows_of(BROKER_A, range(15, 40)))
    assert found(tmp_path, [second, first], wanted) == list(numbers)


def test_files_that_interleave_and_rows_in_another_order_come_in_order(tmp_path: Path) -> None:
    numbers = random.Random(5).sample(range(0, 40, 3), 14)
    shuffled = part(tmp_path, rows_of(BROKER_A, numbers[:9]), rows_of(BROKER_A, numbers[9:]))
    others = [part(tmp_path, rows_of(BROKER_A, range(at, 40, 3))) for at in (2, 1)]
    assert found(tmp_path, [*others, shuffled], span(500, 3000)) == list(range(5, 30))


def test_other_logs_in_the_same_file_are_left_out(tmp_path: Path) -> None:
    a, b = rows_of(BROKER_A, range(0, 40, 2)), rows_of(BROKER_B, range(40))
    mixed = part(tmp_path, pa.Table.from_batches([b, a]).combine_chunks().to_batches()[0])
    assert found(tmp_path, [mixed], span(0, 1000)) == [0, 2, 4, 6, 8]
    assert found(tmp_path, [mixed], span(0, 500), BROKER_B) == [0, 1, 2, 3, 4]
    assert found(tmp_path, [mixed], span(0, 1000), LogId("rocketmq", "broker-c")) == []


def test_a_record_that_is_there_twice_comes_twice(tmp_path: Path) -> None:
    parts = [part(tmp_path, rows_of(BROKER_A, numbers)) for numbers in (range(10), range(9, 20))]
    assert found(tmp_path, parts, span(700, 1200)) == [7, 8, 9, 9, 10, 11]


def test_row_groups_outside_are_not_touched(tmp_path: Path) -> None:
    """They are damaged, and nobody notices until they are wanted."""
    one = part(tmp_path, rows_of(BROKER_A, range(20)), rows_of(BROKER_A, range(20, 40)))
    path = tmp_path / one.path
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    with path.open("r+b") as file:
        file.seek(column.data_page_offset)
        file.write(b"\xff" * column.total_compressed_size)
    assert found(tmp_path, [one], span(2000, 4000)) == list(range(20, 40))
    with pytest.raises(ReplicaError, match=one.path):
        found(tmp_path, [one], span(1900, 4000))


def test_a_file_that_is_missing_or_none_is_named(tmp_path: Path) -> None:
    one, other = (part(tmp_path, rows_of(BROKER_A, numbers)) for numbers in (range(20), range(20, 40)))
    (tmp_path / one.path).unlink()
    (tmp_path / other.path).write_bytes(b"PAR1 is how it begins, and no Parquet file at all PAR1")
    for broken, wanted in ((one, span(0, 2000)), (other, span(2000, 4000))):
        with pytest.raises(ReplicaError, match=broken.path) as caught:
            found(tmp_path, [one, other], wanted)
        assert (caught.value.log, caught.value.offset) == (str(BROKER_A), broken.range.start)


def test_parts_of_a_table_before_and_after_its_files_are_merged(plain: SparkSession, tmp_path: Path) -> None:
    other = MemoryMaster((100,) * 40, log_id=BROKER_B)
    for master in (MASTER, other):
        replica = opened(plain, tmp_path, master)
        replica(ranges(0, 2000, split=1000, log_id=str(master.log_id)))
        replica(ranges(2000, 4000, log_id=str(master.log_id)))
    table = KernelTable(plain, LOG.path(str(tmp_path)))

    def read(wanted: OffsetRange) -> tuple[int, pa.Table]:
        """How many files, and what is in them."""
        parts = stored.parts(table, table.existing(), BROKER_A, wanted)
        return len(parts), pa.Table.from_batches(stored.read(table.path, parts, BROKER_A, wanted), SCHEMA)

    expected = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    assert read(span(0, 4000)) == (3, expected)
    assert read(span(1000, 2000)) == (1, expected.slice(10, 10))
    merge_all(table, LOG)
    assert read(span(0, 4000)) == (1, expected)
    assert read(span(1000, 2000)) == (1, expected.slice(10, 10))
