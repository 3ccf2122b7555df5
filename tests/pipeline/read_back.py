"""What a warehouse has of a log, read by delta-rs: neither by Spark nor by the code that wrote it."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tests.pipeline.running import assert_covered, encoded

TEST = "rocketmq/test"


def table_of(lake: Path, name: str, log_id: str = TEST) -> pa.Table:
    rows = DeltaTable(lake / name).to_pyarrow_table(filters=[("log_id", "=", log_id)])
    return rows.sort_by("start" if name == "ledger" else "offset")


def count_of(lake: Path, name: str = "log") -> int:
    """All rows of a table; 0 where there is none."""
    if not DeltaTable.is_deltatable(str(lake / name)):
        return 0
    count: int = DeltaTable(lake / name).to_pyarrow_dataset().count_rows()
    return count


def rebuilt(lake: Path, log_id: str = TEST) -> bytes:
    return encoded(table_of(lake, "log", log_id))


def assert_whole(lake: Path, log: bytes, log_id: str = TEST) -> None:
    """The table is `log`, once; and so says the ledger of what was not deleted since."""
    assert rebuilt(lake, log_id) == log
    rows = table_of(lake, "ledger", log_id).to_pylist()
    assert_covered([row for row in rows if row["deleted_at"] is None], log)
