"""A damaged file with rows of several partitions of a topic, and what else may be wrong with such a file."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.books.incidents import IncidentsTable
from sinks.healing import damage
from sinks.healing.repair import Repair, Repaired
from sinks.state.log_table import LogTable
from sinks.tables import KAFKA_LOG
from sinks.values.incident import Action
from sources.errors import ReplicaError
from sources.loss import Condition
from sources.offsets import OffsetRange, partition_log
from tests.pipeline.repair_bench import spoil
from tests.sinks.accounts import incident
from tests.sinks.memory_partition import ORDERS, MemoryPartition, partitions
from tests.sinks.topic_batches import Twin
from tests.spans import span

pytestmark = pytest.mark.timeout(300)

OFFSETS = (0, 2, 3, 7, 9, 12)


@pytest.fixture
def topic(plain: SparkSession, tmp_path: Path) -> dict[int, MemoryPartition]:
    """Of three partitions, of which [0, 5) and [5, 15) were committed; the files of the first batch are damaged."""
    made = partitions(OFFSETS, OFFSETS, OFFSETS, end=15)
    twin = Twin(plain, tmp_path, made).opened()
    twin.takes(dict.fromkeys(made, (0, 5)))
    first = list((tmp_path / "kafka_log").glob("*.parquet"))
    assert len(first) < len(made)
    twin.takes(dict.fromkeys(made, (5, 15)))
    for file in first:
        spoil(file)
    return made


def repaired(plain: SparkSession, lake: Path, master: MemoryPartition) -> Repaired:
    found = incident(0, 5, Condition.REPLICA_DAMAGED, action=Action.REPORTED)
    IncidentsTable(plain, str(lake), master.log_id).record(0, [found])
    return Repair(plain, str(lake), master).run()


def holes_of(plain: SparkSession, lake: Path, number: int) -> tuple[OffsetRange, ...]:
    return LogTable(plain, KAFKA_LOG.path(str(lake)), partition_log(ORDERS, number)).read().holes.ranges


def test_each_partition_with_rows_in_it_has_a_hole(
    plain: SparkSession, tmp_path: Path, topic: dict[int, MemoryPartition]
) -> None:
    for master in topic.values():
        repaired(plain, tmp_path, master)
    assert [holes_of(plain, tmp_path, number) for number in topic] == [(span(0, 5),)] * 3
    twin = Twin(plain, tmp_path, topic)
    assert twin.rows() == {number: [7, 9, 12] for number in topic}
    assert twin.ledger() == [(number, 5, 15, 3) for number in topic]


def test_a_file_of_which_nobody_knows_the_offsets_is_left_to_a_person(
    plain: SparkSession, tmp_path: Path, topic: dict[int, MemoryPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "offsets_of", lambda file: None)
    with pytest.raises(ReplicaError, match="which offsets it has is not known") as caught:
        repaired(plain, tmp_path, topic[0])
    assert "Restore the file" in str(caught.value.hint)
    assert holes_of(plain, tmp_path, 0) == ()
