"""What the scans of an executed query read, by Spark's own metrics of its plan.

In a session without adaptive execution (WITHOUT_CHANGES): that drops scans from a plan once they have found no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

WITHOUT_CHANGES: Final = {"spark.sql.adaptive.enabled": "false"}


@dataclass(frozen=True, slots=True)
class Read:
    """What scans opened and what came out of them."""

    files: int = 0
    file_bytes: int = 0  # sizes of the files; of columns that nobody asks for nothing is read
    rows: int = 0  # of the row groups that could not be skipped

    def __add__(self, other: Read) -> Read:
        return Read(self.files + other.files, self.file_bytes + other.file_bytes, self.rows + other.rows)


def reads(frame: DataFrame) -> list[Read]:
    """One for each scan of files in the plan of `frame`, which has been executed: collected, or taken as Arrow."""
    return [
        Read(*(node.metrics().apply(name).value() for name in ("numFiles", "filesSize", "numOutputRows")))
        for node in _nodes(frame._jdf.queryExecution().executedPlan())
        if node.getClass().getSimpleName() == "FileSourceScanExec"
    ]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))
