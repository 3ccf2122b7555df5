"""The messages that have arrived in a Delta table, and how long after they were stored they became visible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bench.contest import percentile
from bench.contestants import added
from sinks.storage.place import open_folder

TOPIC = "fresh"
"""Of the messages that count; a table may have others, too."""

_EMPTY = pa.table({"log_id": pa.array([], pa.string()), "offset": pa.array([], pa.int64()),
                   "stored_ms": pa.array([], pa.float64()), "visible_ms": pa.array([], pa.float64())})  # fmt: skip


class Arrived:
    """The messages in a table, by its Delta log. Each commit is read once. Times are ms since 1970.

    A commit is visible when its file last changed as a file (ctime): when it was renamed into ``_delta_log``. Or when
    the driver had the store's answer, if `answered` gets these times, of the commits with rows.
    """

    def __init__(self, table: str, stored: str, answered: Sequence[float] | None = None) -> None:
        self._table = table
        self._stored = stored
        self._answered = answered
        self._version = self._with_rows = 0
        self._found = [_EMPTY]

    def look(self) -> int:
        """Read the commits that are new. Returns how many messages there are."""
        filesystem, folder = open_folder(self._table)
        while _is_there(filesystem, path := f"{folder}/_delta_log/{self._version:020d}.json"):
            if files := added(filesystem, path).files:
                if self._answered is None:
                    visible_ms = Path(path).stat().st_ctime_ns / 1e6
                elif self._with_rows < len(self._answered):
                    visible_ms = self._answered[self._with_rows]
                else:
                    break
                self._found += (self._messages(filesystem, f"{folder}/{name}", visible_ms) for name in files)
                self._with_rows += 1
            self._version += 1
        return sum(map(len, self._found))

    def each_once(self, expected: int) -> pa.Table:
        """The messages: log_id, offset, stored_ms, visible_ms. Raises SystemExit unless `expected` are there, once."""
        self.look()
        found = pa.concat_tables(self._found)
        different = len(found.group_by(["log_id", "offset"]).aggregate([]))
        if not len(found) == different == expected:
            raise SystemExit(f"{self._table} has {len(found):,} rows, {different:,} different ones, not {expected:,}")
        return found

    def _messages(self, filesystem: pafs.FileSystem, path: str, visible_ms: float) -> pa.Table:
        columns = ["log_id", "topic", "offset", self._stored]
        read = pq.ParquetFile(path, filesystem=filesystem).read(columns=columns)
        read = read.filter(pc.equal(read["topic"], TOPIC))
        stored = read[self._stored]
        stored_ms = pc.cast(stored, pa.timestamp("ms", stored.type.tz), safe=False).cast(pa.int64()).cast(pa.float64())
        visible = pa.array(np.full(len(read), visible_ms))
        return pa.table([read["log_id"].cast(pa.string()), read["offset"], stored_ms, visible], schema=_EMPTY.schema)


def _is_there(filesystem: pafs.FileSystem, path: str) -> bool:
    return filesystem.get_file_info(path).type is pafs.FileType.File


def rates(found: pa.Table, begin_ms: float, end_ms: float) -> dict[str, Any]:
    """What `bench.many_live.Live` says of the commits of that time, and of the messages stored in it."""
    seconds = (end_ms - begin_ms) / 1000
    committed, stored = (found.filter(_within(found[name], begin_ms, end_ms)) for name in ("visible_ms", "stored_ms"))
    waited_ms: list[float] = pc.subtract(stored["visible_ms"], stored["stored_ms"]).to_pylist()
    logs = committed.group_by("visible_ms").aggregate([("log_id", "count_distinct")])["log_id_count_distinct"]
    return {
        "measured_s": round(seconds, 1),
        "records_per_s": round(len(committed) / seconds, 1),
        "stored_per_s": round(len(stored) / seconds, 1),
        "p50_ms": round(percentile(waited_ms, 0.5)),
        "p99_ms": round(percentile(waited_ms, 0.99)),
        "commits": len(logs),
        "logs_in_commit": percentile(logs.to_pylist(), 0.5) if len(logs) else 0,
    }


def _within(at_ms: pa.ChunkedArray, begin_ms: float, end_ms: float) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(at_ms, begin_ms), pc.less(at_ms, end_ms))
