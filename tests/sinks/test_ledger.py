"""The ledger: idempotent, and complete after a crash."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.books.ledger import Ledger
from sinks.tables import LEDGER
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import ensure_tables
from sources.offsets import Offset, OffsetRange, Position
from tests.sinks.batches import ledger
from tests.sinks.memory_master import BROKER_A
from tests.sinks.test_position import BROKER_B, ROW
from tests.sinks.unheard import lose_answers, missing_files


@pytest.fixture
def path(plain: SparkSession, tmp_path: Path) -> str:
    ensure_tables(plain, str(tmp_path))
    return LEDGER.path(str(tmp_path))


def position(offset: int, epoch: int = 0) -> Position:
    return Position(BROKER_A, epoch, Offset(offset))


def row(start: int, end: int) -> LedgerRow:
    return replace(ROW, start=Offset(start), end=Offset(end))


def test_a_row_says_all_there_is(plain: SparkSession, path: str, tmp_path: Path) -> None:
    # 2024-01-01T00:00:00Z is 1704067200 s after the epoch
    entry = replace(ROW, first_store_timestamp=1_704_067_200_000_000, committed_at=1_704_067_200_000_001)
    assert Ledger(plain, path).append_each({position(500): [entry]})
    assert ledger(tmp_path) == [
        {
            "log_id": "rocketmq/broker-a",
            "epoch": 0,
            "start": 0,
            "end": 500,
            "records": 5,
            "bytes": 500,
            "checksum": "sha256:00",
            "first_store_timestamp": datetime(2024, 1, 1, tzinfo=UTC),
            "last_store_timestamp": None,
            "committed_at": datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            "origin": "stream",
            "deleted_at": None,
        }
    ]
    assert entry.range == OffsetRange(Offset(0), Offset(500))


def test_rows_of_an_unheard_commit_stay_when_others_follow(
    plain: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = Ledger(plain, path), Position(BROKER_B, 0, Offset(300))
    mine.append_each({position(200): [row(0, 200)]})
    lose_answers(monkeypatch)
    mine.append_each({position(500): [row(200, 500)]})
    assert mine.append_each({position(500): [row(200, 500)], other: [row(0, 300)]}) == {other}
    assert missing_files(tmp_path) == []
    assert [(entry["log_id"], entry["end"]) for entry in ledger(tmp_path)] == [
        ("rocketmq/broker-a", 200), ("rocketmq/broker-a", 500), ("rocketmq/broker-b", 300),
    ]  # fmt: skip
