"""Which columns of integers may become double, by what their files have."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter
from sinks.typed.columns import Column, table_spec
from sinks.typed.step.widening import can_widen
from sources.errors import ReplicaError

LARGE = (1 << 53) + 1
STATED = "c0"  # the Delta log has its bounds
UNSTATED = "c39"  # it ends before


def stored(folder: Path, name: str, *groups: list[dict[str, Any]], columns: int = 40) -> StoredFile:
    """A file of a table with so many columns of integers, with these row groups."""
    spec = table_spec("orders", [Column(f"c{number}", f"c{number}", "bigint") for number in range(columns)])
    place = {"log_id": "rocketmq/a", "offset": 0, "stored_at": datetime(2026, 11, 25, tzinfo=UTC)}
    with FileWriter(spec, str(folder), name) as writer:
        for rows in groups:
            given = [{**place, **row} for row in rows]
            writer.write(pa.RecordBatch.from_pylist(given, schema=spec.schema.remove_metadata()))
        return StoredFile({"path": name, "stats": writer.finish().statistics})


@pytest.mark.parametrize("column", [STATED, UNSTATED])
@pytest.mark.parametrize(
    ("values", "can"),
    [
        ([1, 2], True),
        ([None, None], True),
        ([LARGE - 2, 2 - LARGE], True),
        ([LARGE], False),
        ([1, -LARGE], False),
        ([-(1 << 63)], False),
    ],
)
def test_only_integers_that_a_double_has(tmp_path: Path, column: str, values: list[int | None], can: bool) -> None:
    file = stored(tmp_path, "a", [{column: 7}], [{column: one} for one in values])
    assert (column in file.statistics()["nullCount"]) == (column == STATED)
    assert can_widen(column, [file], str(tmp_path)) == can


@pytest.mark.parametrize("column", [STATED, UNSTATED])
def test_of_all_files_and_not_of_those_that_are_older_than_the_column(tmp_path: Path, column: str) -> None:
    older = stored(tmp_path, "a", [{}], columns=0)
    sound, large = stored(tmp_path, "b", [{column: 1}]), stored(tmp_path, "c", [{column: LARGE}])
    assert can_widen(column, [older, sound], str(tmp_path))
    assert not can_widen(column, [older, sound, large], str(tmp_path))
    assert can_widen(column, [], str(tmp_path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = stored(tmp_path, "a", [{UNSTATED: 1}])
    (tmp_path / "a").unlink()
    with pytest.raises(ReplicaError, match=f"{tmp_path}/a"):
        can_widen(UNSTATED, [file], str(tmp_path))
