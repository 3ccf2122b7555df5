"""``kill -9`` of a topic's driver after each step of a batch, one after the other: one copy of all in the end."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import load
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_groups import seen_by_tools
from tests.peers.kafka_traffic import Record, create_topic, producer, send, transaction
from tests.peers.kafka_twin import assert_accounted, assert_replicated, state_of, table
from tests.pipeline.killed_driver import STEPS, kill_after
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(600)]

ALWAYS = ("commit",)  # its ledger is owed then. Each step within one process: tests/sinks/test_topic_group.py
BATCH = 300
OWES_LEDGER = {"files": False, "commit": True, "acknowledge": True, "ledger": False}
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(VERSIONS[-1], tmp_path_factory.mktemp("kafka")) as running:
        create_topic(running, "orders", PARTITIONS)
        with producer(running) as plain, producer(running, transactional_id="orders") as transactional:
            for partition in range(PARTITIONS):
                send(plain, "orders", [Record(b"%d" % number) for number in range(1500)], partition)
                for commit in (True, False, True):
                    with transaction(transactional, commit=commit):
                        send(transactional, "orders", [Record(b"in a transaction")] * 50, partition)
        yield running


def config_file(folder: Path, broker: KafkaBroker, group: str, batch: int = BATCH) -> Path:
    path = folder / "job.toml"
    path.write_text(
        f'warehouse = "{folder}/lake"\n[spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "512m"\n'
        f'[[topics]]\nid = "kafka/test/orders"\nservers = "{broker.server}"\nmax_offsets_per_trigger = {batch}\n'
        f'group = "{group}"\n'
    )
    return path


@pytest.mark.parametrize("steps", [ALWAYS, pytest.param(STEPS, marks=pytest.mark.soak)], ids=len)
def test_restarts_give_exactly_one_copy(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, steps: Sequence[str]
) -> None:
    group = f"killed-{len(steps)}"
    job = config_file(tmp_path, broker, group)
    config = load(job)
    lake = Path(config.warehouse)
    before = 0
    for step in steps:
        kill_after(step, job)
        # what the dead driver left: all of its second batch or nothing of it; a batch may be a replay of the one before
        state = state_of(spark, lake, "orders")
        reached = sum(one.offset for one in state.partitions.values())
        assert before < reached <= before + 3 * (BATCH + PARTITIONS)
        in_ledger = table(lake, "ledger", "log_id", "end").sort_by("end").to_pylist()
        ends = {row["log_id"]: row["end"] for row in in_ledger}
        positions = {f"kafka/test/orders/{number}": one.offset for number, one in state.partitions.items()}
        assert (ends != positions) == OWES_LEDGER[step]
        told = {number: offset for (_, number), (offset, _) in seen_by_tools(broker, group).items()}
        assert all(offset <= state.partitions[number].offset for number, offset in told.items())
        before = reached

    assert not (lake / "_checkpoints").exists()  # the table alone says where it goes on
    replicate_now(spark, load(config_file(tmp_path, broker, group, batch=10 * BATCH)))
    assert assert_replicated(lake, broker, "orders") == PARTITIONS * 1600
    assert_accounted(spark, lake, "orders")
