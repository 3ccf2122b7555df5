"""What docs/other-engines.md shows is run as it stands there, and gives what the view `messages` gives."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.views.conftest import LOG_IDS
from tests.sinks.views.lake import Asked, Row
from tests.truth import Fixture

pytestmark = pytest.mark.spark

DOCUMENT = Path(__file__).parents[3] / "docs" / "other-engines.md"
PLACE = "/data/lake"
DUCKDB, POLARS, DELTA_RS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
COLUMNS = (
    "log_id", "offset", "topic", "queue_id", "queue_offset", "tags", "keys", "unique_key", "body", "born_timestamp",
    "delivered_timestamp",
)  # fmt: skip


def run(block: str, replica: Path | str, folder: Path) -> dict[str, Any]:
    """The names that a block of the document leaves behind."""
    assert PLACE in block
    program = folder / "block.py"
    program.write_text(block.replace(PLACE, str(replica)))
    return runpy.run_path(str(program))


@pytest.fixture(scope="module")
def messages(asked: Asked) -> list[tuple[Any, ...]]:
    """The view's rows of both brokers, without those of inner batches."""
    found = [
        row | {"log_id": str(log_id)}
        for log_id in LOG_IDS.values()
        for row in asked.rows("messages", str(log_id))
        if row["batch_index"] is None
    ]
    assert len(found) > 5000
    return plain(found)


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=lambda row: row[:2])


def test_duckdb_and_polars(replica: Path, messages: list[tuple[Any, ...]], tmp_path: Path) -> None:
    left = run(DUCKDB, replica, tmp_path)
    assert plain(left["messages"].to_arrow_table().to_pylist()) == messages
    assert left["orders"].columns == list(COLUMNS)
    left = run(POLARS, replica, tmp_path)
    assert plain(left["messages"].collect().to_dicts()) == messages
    assert left["orders"].collect().columns == list(COLUMNS)


def test_delta_rs(replica: Path, tmp_path: Path, fixture_497: Fixture) -> None:
    block = DELTA_RS.replace("broker-a", "b497")
    left = run(block, replica, tmp_path)
    assert left["position"] == fixture_497.max_offset
    assert set(left["payments"]["topic"].to_pylist()) == {"payments"}
