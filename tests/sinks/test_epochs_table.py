"""The table of epochs: each once, whoever comes again."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.books.epochs import EpochsTable
from sources.epochs import Epoch
from sources.offsets import LogId, Offset

LOG = LogId("rocketmq", "broker-a")
FIRST, SECOND = Epoch(0, Offset(0)), Epoch(1, Offset(900))


def test_each_epoch_is_there_once_also_number_0(plain: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "epochs")
    table = EpochsTable(plain, path)
    assert not table.append(LOG, 0, ())
    assert table.append(LOG, 0, (FIRST,))
    assert not table.append(LOG, 0, (FIRST,))
    later = EpochsTable(plain, path)  # of the next run
    assert not later.append(LOG, 0, (FIRST,))
    assert later.append(LOG, 0, (FIRST, SECOND))
    assert later.append(LOG, 1, (FIRST,))
    rows = DeltaTable(path).to_pyarrow_table(columns=["epoch", "number", "start"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(0, 0, 0), (0, 1, 900), (1, 0, 0)]
