"""What OPTIMIZE of Spark does to a table: all rows in one other file, whose statistics are cut as Delta cuts them."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from sinks.delta.data_file import DataFile, lower_bound, upper_bound
from sinks.delta.delta_log import newest
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable
from sinks.tables import TableSpec
from sources.offsets import Offset


def merge_all(table: KernelTable, spec: TableSpec) -> None:
    """Of a table without partitions."""
    found = newest(table.path)
    assert found is not None
    rows = DeltaTable(table.path).to_pyarrow_table().select(spec.schema.names).cast(spec.schema.remove_metadata())
    with FileWriter(spec, table.path, new_name(Offset(0))) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write(batch)
        merged = writer.finish()
    table.rearrange(table.existing(), list(found.files.values()), [({}, _with_cut_bounds(merged))])


def _with_cut_bounds(file: DataFile) -> DataFile:
    said: dict[str, Any] = json.loads(file.statistics)
    for name, cut in (("minValues", lower_bound), ("maxValues", upper_bound)):
        texts = {column: cut(value, pa.string()) for column, value in said[name].items() if isinstance(value, str)}
        said[name] |= texts
    return replace(file, statistics=json.dumps(said))
