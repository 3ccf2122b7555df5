"""What a warehouse has of a log, read by delta-rs: neither by Spark nor by the code that wrote it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from sources.master import RECORD_SCHEMA
from sources.rocketmq.columns import codec

TEST = "rocketmq/test"


def table_of(lake: Path, name: str, log_id: str = TEST) -> pa.Table:
    """The rows of one log in one table, in order."""
    rows = DeltaTable(lake / name).to_pyarrow_table(filters=[("log_id", "=", log_id)])
    return rows.sort_by("start" if name == "ledger" else "offset")


def count_of(lake: Path, name: str = "log") -> int:
    """All rows of a table; 0 where there is none."""
    if not DeltaTable.is_deltatable(str(lake / name)):
        return 0
    count: int = DeltaTable(lake / name).to_pyarrow_dataset().count_rows()
    return count


def rebuilt(lake: Path, log_id: str = TEST) -> bytes:
    """The bytes of a commit log, from the table alone."""
    return encoded(table_of(lake, "log", log_id))


def encoded(rows: pa.Table) -> bytes:
    """What the master's log has of these rows."""
    records = rows.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA)
    return b"".join(codec.encode(batch) for batch in records.combine_chunks().to_batches())


def assert_whole(lake: Path, log: bytes, log_id: str = TEST) -> None:
    """The table is `log`, once; and so says the ledger of what was not deleted since."""
    assert rebuilt(lake, log_id) == log
    ledger = table_of(lake, "ledger", log_id)
    check_ledger(ledger.filter(ledger["deleted_at"].is_null()), log)


def check_ledger(rows: pa.Table, log: bytes, first: int = 0) -> None:
    """It covers `log`, from offset `first`, once, and its checksums are right."""
    at = first
    for row in rows.sort_by("start").to_pylist():
        part = log[row["start"] - first : row["end"] - first]
        checksum = f"sha256:{hashlib.sha256(part).hexdigest()}"
        assert (row["start"], row["bytes"], row["checksum"]) == (at, len(part), checksum)
        at = row["end"]
    assert at == first + len(log)
