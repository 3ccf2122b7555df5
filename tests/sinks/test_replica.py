"""Batches end to end: from a master in memory into the tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from sinks.batch.proof import BatchStep
from sinks.delta.kernel import KernelTable
from sinks.tables import LOG
from sinks.warehouse import spark_schema
from sources.errors import CorruptRecord
from sources.master import Committed
from sources.offsets import LogId, Offset
from tests.sinks.batches import opened, ranges, state
from tests.sinks.memory_master import Failing, MemoryMaster, RecordingSession

SIZES = (10, 90, 300, 5, 5, 90) * 4  # records start at 0, 10, 100, 400, 405, 410, then again from 500, 1000, 1500
MASTER = MemoryMaster(SIZES)


@pytest.mark.spark
def test_every_field_of_every_record_arrives(spark: SparkSession, tmp_path: Path) -> None:
    replica = opened(spark, tmp_path, MASTER)
    replica(ranges(0, 1100, 250))
    replica(ranges(1100, 2000))
    rows = [{"log_id": "rocketmq/broker-a", "epoch": 0, **row} for row in MASTER.records()]
    expected = spark.createDataFrame([tuple(row.values()) for row in rows], spark_schema(LOG.schema))
    assert_df_equality(
        spark.read.format("delta").load(LOG.path(str(tmp_path))).orderBy("offset"), expected, ignore_metadata=True
    )


def test_a_replica_may_begin_in_the_middle(plain: SparkSession, tmp_path: Path) -> None:
    """HA-40."""
    replica = opened(plain, tmp_path, MASTER)
    replica(ranges(500, 1000))
    found = state(plain, tmp_path)
    assert (found.first, found.offset) == (500, 1000)


def test_a_batch_without_rows_names_no_log_and_is_nothing(plain: SparkSession, tmp_path: Path) -> None:
    session = RecordingSession()
    replica = opened(plain, tmp_path, MASTER, session)
    replica(ranges(0, 0))
    assert session.promises == []
    replica(ranges(0, 100))
    replica(ranges(100, 100))
    assert (session.promises, session.readings) == ([100], 1)
    assert state(plain, tmp_path).offset == 100


def test_the_session_makes_way_while_the_tasks_read_and_only_then(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-45. Also where they fail: and it was back before anything is committed or acknowledged. Hooks come last, those
    of the log table and of the ledger."""
    seen: list[str] = []

    class Watching(RecordingSession):
        @contextmanager
        def reading(self) -> Iterator[None]:
            seen.append("reading")
            try:
                yield
            finally:
                seen.append("read")

        def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
            seen.append("acknowledge")

    replica = opened(plain, tmp_path, MASTER, Watching(), on_step=lambda step: seen.append(step.value))
    with monkeypatch.context() as patch:
        patch.setattr(KernelTable, "run_hooks", lambda _, *, checkpoint_aside: seen.append(f"hooks {checkpoint_aside}"))
        replica(ranges(0, 500))
    assert seen == ["reading", "read", "files", "commit", "acknowledge", "acknowledge", "ledger", *2 * ["hooks True"]]
    seen.clear()
    failing = opened(plain, tmp_path, Failing(SIZES), Watching())
    with pytest.raises(CorruptRecord):
        failing(ranges(500, 1000))
    assert seen == ["reading", "read"]


def test_received_is_what_is_proven_and_never_below_the_position(plain: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[Offset | None, Offset | None]] = []

    def look(step: BatchStep) -> None:
        seen.append((replica.position(), replica.received()))

    replica = opened(plain, tmp_path, MASTER, on_step=look)
    assert replica.received() is None
    replica(ranges(0, 150))
    assert seen == [(None, 400), (400, 400), (400, 400), (400, 400)]
    assert opened(plain, tmp_path, MASTER).received() == 400
