"""Rows of a table that are others, behind Delta's back: damage that no commit tells of."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.state.holes import Holes
from sinks.values.ledger_row import LedgerRow
from sources.offsets import LogId, OffsetRange

Row = dict[str, Any]


def edit_rows(table: Path, edits: Mapping[int, Callable[[Row], list[Row]]], key: str = "offset") -> None:
    """In place of each row whose `key` is named: what its edit makes of it. Other files stay as they are."""
    edited = {}
    for file in table.glob("*.parquet"):
        rows = pq.read_table(file, partitioning=None)
        if any(at in edits for at in rows[key].to_pylist()):
            made = [new for row in rows.to_pylist() for new in (edits[row[key]](row) if row[key] in edits else [row])]
            pq.write_table(pa.Table.from_pylist(made, rows.schema), file)
            edited[file.name] = file.stat().st_size
    _tell_sizes(table / "_delta_log", edited)


def _tell_sizes(log: Path, edited: Mapping[str, int]) -> None:
    """Spark looks for a file's footer by the size that the commit says."""
    for derived in (*log.glob("*.checkpoint*.parquet"), *log.glob("*.crc"), *log.glob("_last_checkpoint")):
        derived.unlink()
    for commit in log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (action["add"] for action in actions if "add" in action):
            add["size"] = edited.get(add["path"], add["size"])
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def make_hole(spark: SparkSession, lake: Path, log_id: LogId, ledger: Sequence[LedgerRow], table: str) -> OffsetRange:
    """Take adjoining rows of the ledger out, and theirs of the table, which says that it is a hole; what that is."""
    hole = OffsetRange(ledger[0].start, ledger[-1].end)

    def without_this_log(row: Row) -> list[Row]:
        return [] if row["log_id"] == str(log_id) else [row]

    edit_rows(lake / "ledger", {row.start: without_this_log for row in ledger}, key="start")
    edit_rows(lake / table, dict.fromkeys(range(hole.start, hole.end), without_this_log))
    kernel = KernelTable(spark, str(lake / table))
    kernel.commit(kernel.existing(), domains={f"logtwin.holes.{log_id}": Holes(ranges=(hole,)).as_json()})
    return hole
