"""What tasks of a query report: values, each pickled in a row of its own. Tasks of an RDD return values as such."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

REPORT_DDL: Final = "report binary"
"""The columns of such a query, for Spark."""
_SCHEMA: Final = pa.schema([pa.field("report", pa.binary())])


def as_row(report: object) -> pa.RecordBatch:
    """What a task yields."""
    return pa.record_batch([pa.array([pickle.dumps(report)])], schema=_SCHEMA)


def reported(rows: Iterable[Any]) -> list[Any]:
    """What the tasks have made rows of."""
    return [pickle.loads(row["report"]) for row in rows]  # noqa: S301 - our own tasks wrote it
