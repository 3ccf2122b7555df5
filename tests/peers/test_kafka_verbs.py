"""What can be proven of a topic's replica, and healed, beside a real broker."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, load
from pipeline.inspect.coverage import coverages
from pipeline.inspect.selection import subjects
from pipeline.operate.backfill import Wanted, run_backfill
from pipeline.operate.repair import repair_logs
from pipeline.verify.run import Scope, verify_log
from pipeline.verify.summary import VerifySummary
from sinks.proof.verdicts import Verdict
from sources.errors import LogtwinError, Recreated
from sources.offsets import Offset, OffsetRange
from tests.patience import wait_until
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_compaction import await_compaction, await_rest, create_compacted, set_config
from tests.peers.kafka_groups import seen_by_tools
from tests.peers.kafka_traffic import Record, create_topic, delete_topic, producer, send, transaction
from tests.peers.kafka_twin import assert_accounted, assert_replicated, config_of, group_offsets, state_of, table
from tests.pipeline.edited_rows import edit_rows
from tests.pipeline.killed_driver import STEPS, kill_after
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.timeout(600)]

EVERYTHING = Wanted.parse(None, None)


def sent(broker: KafkaBroker, topic: str, count: int, partitions: int = 2) -> None:
    """`count` records to each partition, and as many in a transaction that is aborted."""
    with producer(broker) as plain, producer(broker, transactional_id=f"{topic}-{count}") as transactional:
        for number in range(partitions):
            records = [Record(b"%d" % at, b"key", [("h", b"v")]) for at in range(count)]
            send(plain, topic, records, number)
            with transaction(transactional, commit=False):
                send(transactional, topic, records[:5], number)


def verified(spark: SparkSession, config: Config) -> dict[str, VerifySummary]:
    return {str(one.log_id): verify_log(spark, config.warehouse, one, Scope(restart=True)) for one in subjects(config)}


def test_what_lies_before_the_beginning_is_filled_in_and_every_record_compared(
    spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path
) -> None:
    create_topic(newest_kafka, "proven", 2)
    sent(newest_kafka, "proven", 200)
    config = config_of(newest_kafka, tmp_path, "proven", starting_offset="latest", split_offsets=100)
    replicate_now(spark, config)
    sent(newest_kafka, "proven", 50)
    replicate_now(spark, config)
    firsts = {number: one.first for number, one in state_of(spark, tmp_path, "proven").partitions.items()}
    assert all(first > 200 for first in firsts.values())
    results = [run_backfill(spark, config, one, EVERYTHING) for one in subjects(config)]
    assert [one.holes for one in results] == [(OffsetRange(Offset(0), first),) for first in firsts.values()]
    assert [(one.records, one.remaining) for one in results] == [(200, ())] * 2
    assert assert_replicated(tmp_path, newest_kafka, "proven") == 500
    again = [run_backfill(spark, config, one, EVERYTHING) for one in subjects(config)]
    assert [one.holes for one in again] == [(), ()]

    found = verified(spark, config)
    assert found.keys() == {"kafka/test/proven/0", "kafka/test/proven/1"}
    assert all(one.problem is None and one.without_master_bytes == 0 for one in found.values())
    assert all(one.claims > 1 and one.bytes > 250 * 30 for one in found.values())
    assert all(one.problem is None for one in coverages(config))

    log_id, offset = "kafka/test/proven/0", 0
    other = {offset: lambda row: [row | {"value": b"other"} if row["log_id"] == log_id else row]}
    edit_rows(tmp_path / "kafka_log", other)
    found = verified(spark, config)
    (difference,) = found[log_id].differences
    assert difference.verdict is Verdict.REPLICA_DAMAGED
    assert [one.offset for one in difference.differences] == [offset]
    assert all(one.problem is None for name, one in found.items() if name != log_id)


@pytest.mark.nightly
def test_a_topic_that_was_created_anew_begins_a_new_epoch(
    spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path
) -> None:
    """One that was empty goes on with the others. Nothing is promised until a repair has come to all."""
    create_topic(newest_kafka, "anew", 3)
    sent(newest_kafka, "anew", 40)  # to 0 and 1
    config = config_of(newest_kafka, tmp_path, "anew", on_loss="record")
    replicate_now(spark, config)
    before = state_of(spark, tmp_path, "anew")
    delete_topic(newest_kafka, "anew")
    wait_until(lambda: group_offsets(newest_kafka, "anew") == {}, "the broker to forget the group's offsets")
    create_topic(newest_kafka, "anew", 3)
    sent(newest_kafka, "anew", 60, partitions=3)
    for _ in range(2):
        with pytest.raises(Recreated, match="deleted and created again"):
            replicate_now(spark, config)
    assert state_of(spark, tmp_path, "anew") == before
    incidents = table(tmp_path, "incidents", "condition", "start", "action").to_pylist()
    assert {tuple(row.values()) for row in incidents} == {("recreated", 0, "reported")}
    with pytest.raises(Recreated):
        list(repair_logs(config, "test", accept_master=False, take_over=False, dry_run=False))
    first = "kafka/test/anew/0"
    list(repair_logs(config, "test", log_id=first, accept_master=True, take_over=False, dry_run=False))
    with pytest.raises(LogtwinError):
        replicate_now(spark, config)
    assert group_offsets(newest_kafka, "anew") == {}
    list(repair_logs(config, "test", accept_master=True, take_over=False, dry_run=False))
    replicate_now(spark, config)
    after = state_of(spark, tmp_path, "anew")
    assert after.topic_id != before.topic_id
    assert {number: one.epoch for number, one in after.partitions.items()} == {0: 1, 1: 1, 2: 0}
    assert assert_replicated(tmp_path, newest_kafka, "anew") == 180
    removed = spark.read.format("delta").load(f"{tmp_path}/kafka_removed")
    assert removed.count() == 80
    assert {row["removed_by_epoch"] for row in removed.select("removed_by_epoch").collect()} == {1}
    assert all(one.problem is None for one in verified(spark, config).values())
    assert all(one.problem is None for one in coverages(config))


@pytest.mark.nightly  # how it is counted: test_comparison_of_compacted.py
def test_what_compaction_took_at_the_broker_is_counted_and_no_difference(
    spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path
) -> None:
    """All records are replicated before the cleaner may take any."""
    topic, a_year_ms = "proven-compacted", 365 * 24 * 3600 * 1000
    create_compacted(newest_kafka, topic, min_compaction_lag_ms=a_year_ms, max_compaction_lag_ms=2 * a_year_ms)
    with producer(newest_kafka, batch_size=2000) as through:
        send(through, topic, [Record(b"%d " % number * 50, b"%d" % (number % 7)) for number in range(600)])
    config = config_of(newest_kafka, tmp_path, topic, max_offsets_per_trigger=200, split_offsets=70)
    replicate_now(spark, config)
    (before,) = verified(spark, config).values()
    assert (before.problem, before.compacted) == (None, 0)

    set_config(newest_kafka, topic, "min.compaction.lag.ms", 0)
    await_compaction(newest_kafka, topic, 100, before.position)
    set_config(newest_kafka, topic, "min.compaction.lag.ms", a_year_ms)
    left = await_rest(newest_kafka, topic, before.position)
    (after,) = verified(spark, config).values()
    assert after.problem is None
    assert after.compacted == 600 - len(left)
    assert after.claims == before.claims
    said = list(repair_logs(config, "test", accept_master=False, take_over=False, dry_run=False))
    assert any("nothing that can be compared differs" in line for line in said)
    assert spark.read.format("delta").load(f"{tmp_path}/kafka_log").count() == 600

    replicate_now(spark, config)
    assert_accounted(spark, tmp_path, topic)
    set_config(newest_kafka, topic, "cleanup.policy", "delete")  # now nobody says any more why records are gone
    (unexplained,) = verified(spark, config).values()
    assert unexplained.differences[0].verdict is Verdict.REWRITTEN


# ``kill -9`` of a topic's driver after each step of a batch, one after the other: one copy of all in the end


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


@pytest.mark.nightly
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
