"""Fixtures for what writes replicas."""

from pathlib import Path

import pytest

from tests.sinks.plain_session import plain as plain


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """With folders of tables for tasks to write to."""
    for name in ("log", "kafka_log"):
        (tmp_path / name).mkdir()
    return tmp_path
