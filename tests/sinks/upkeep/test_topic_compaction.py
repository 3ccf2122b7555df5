"""Files of a topic, whose partitions share them, become few; other topics' stay, and so does every row."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.tables import KAFKA_LOG, LEDGER, TableSpec
from sinks.upkeep.compaction import Compaction, Compactor, Sizes
from sources.offsets import LogId, Offset, OffsetRange, partition_log
from tests.sinks.batches import rows
from tests.sinks.memory_partition import ORDERS, MemoryPartition
from tests.sinks.plain_session import make_plain
from tests.sinks.topic_batches import Twin

pytestmark = pytest.mark.job

PAYMENTS = LogId("kafka", "prod/payments")
NUMBERS = range(12)
STEP = 5
BATCHES = 9
END = STEP * BATCHES


def topic(log_id: LogId) -> dict[int, MemoryPartition]:
    """Its partitions' ids are of several lengths, and one partition has no record."""
    return {number: MemoryPartition(number, tuple(range(END)) if number else (), END, log_id) for number in NUMBERS}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, a file or two a commit."""
    lake: Path = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        plain = make_plain(patch)
        for log_id in (ORDERS, PAYMENTS):
            twin = Twin(plain, lake, topic(log_id)).opened()
            for piece in OffsetRange(Offset(0), Offset(END)).in_pieces(STEP):
                twin.takes(dict.fromkeys(NUMBERS, (piece.start, piece.end)))
            assert set(twin.offsets.values()) == {END}
    return lake


def merged(plain: SparkSession, lake: Path, spec: TableSpec, log_id: LogId) -> Compaction:
    partitions = [partition_log(log_id, number) for number in NUMBERS]
    sizes = Sizes(target_bytes=10**8, min_files=2)
    return Compactor(plain, spec, spec.path(str(lake)), partitions, sizes, shares=True).run(None)


def paths(plain: SparkSession, lake: Path, spec: TableSpec, log_id: LogId) -> set[str]:
    table = KernelTable(plain, spec.path(str(lake)))
    logs = (partition_log(log_id, number) for number in NUMBERS)
    return {file.path for log in logs for file in table.files(table.existing(), {"log_id": str(log)})}


@pytest.mark.parametrize("spec", [KAFKA_LOG, LEDGER], ids=lambda spec: spec.name)
def test_a_topic_s_files_become_one(plain: SparkSession, lake: Path, spec: TableSpec) -> None:
    before = rows(spec.path(str(lake)))
    mine, others = (paths(plain, lake, spec, log_id) for log_id in (ORDERS, PAYMENTS))
    done = merged(plain, lake, spec, ORDERS)
    assert (done.files, done.into) == (len(mine), 1)
    assert len(mine) >= BATCHES
    assert len(paths(plain, lake, spec, ORDERS)) == 1
    assert paths(plain, lake, spec, PAYMENTS) == others
    assert sorted(map(str, rows(spec.path(str(lake))))) == sorted(map(str, before))
    assert merged(plain, lake, spec, ORDERS) == Compaction()


def test_what_was_merged_is_in_the_order_of_the_commits(plain: SparkSession, lake: Path) -> None:
    merged(plain, lake, KAFKA_LOG, PAYMENTS)
    (path,) = paths(plain, lake, KAFKA_LOG, PAYMENTS)
    found = pq.read_table(f"{lake}/kafka_log/{path}", columns=["partition", "offset"]).to_pylist()
    for number in NUMBERS:
        offsets = [row["offset"] for row in found if row["partition"] == number]
        assert offsets == sorted(offsets)
