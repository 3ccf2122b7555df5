"""Topics of real brokers, replicated by a job: equal to what a consumer is given, whatever happens meanwhile."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.replicate import Job
from sources.datasource import register
from sources.errors import BelowMinimum
from sources.kafka.cluster.settings import Isolation
from sources.kafka.streaming import TOPIC_SCHEMA
from sources.kafka.topic import open_topic
from tests.patience import wait_until
from tests.peers.kafka import VERSIONS, KafkaBroker, kafka_cluster
from tests.peers.kafka_compaction import compacted_topic
from tests.peers.kafka_reading import Row, consumed, rows, topic_of
from tests.peers.kafka_traffic import Record, add_partitions, create_topic, delete_records, producer, send, send_mixed
from tests.peers.kafka_twin import assert_accounted, assert_replicated, config_of, group_offsets, state_of, table
from tests.peers.replicating import running_job
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.timeout(600)]

PARTITIONS = 2
ADDED = 1
ENOUGH = 2_000
"""Records: before the partition is added each compression has its turn."""


def has_all(job: Job, config: Config) -> bool:
    """Whether the brokers hold nothing now that is not replicated: what a job has asked last may be a second old."""
    ends = {options.id: open_topic(options).bounds().latest.next for options in config.named_topics}
    reached = {one.log_id: {number: at.position for number, at in one.partitions.items()} for one in job.progress()}
    return reached == ends


@pytest.mark.parametrize("count", [ENOUGH, pytest.param(200_000, marks=pytest.mark.soak)])
def test_mixed_records_while_the_job_runs(
    spark: SparkSession, each_kafka: KafkaBroker, tmp_path: Path, count: int
) -> None:
    """A partition is added midway, the broker is restarted, and the job is, too."""
    chance = random.Random(8)
    mixed, compacted = f"mixed-{count}", f"compacted-{count}"
    create_topic(each_kafka, mixed, PARTITIONS)
    compacted_topic(each_kafka, compacted)
    config = config_of(each_kafka, tmp_path, mixed, compacted)
    with running_job(spark, config) as job:
        send_mixed(each_kafka, mixed, PARTITIONS, count // 2, chance)
        add_partitions(each_kafka, mixed, PARTITIONS + ADDED)
        each_kafka.kill()
        each_kafka.start()
        send_mixed(each_kafka, mixed, PARTITIONS + ADDED, count // 4, chance)
        wait_until(lambda: has_all(job, config), lambda: str(job.progress()))
    with running_job(spark, config) as job:
        send_mixed(each_kafka, mixed, PARTITIONS + ADDED, count // 4, chance)
        wait_until(lambda: has_all(job, config), lambda: str(job.progress()))
    assert assert_replicated(tmp_path, each_kafka, mixed, compacted) >= count
    for topic, partitions in ((mixed, PARTITIONS + ADDED), (compacted, 1)):
        assert_accounted(spark, tmp_path, topic)
        positions = {number: one.offset for number, one in state_of(spark, tmp_path, topic).partitions.items()}
        assert len(positions) == partitions
        assert group_offsets(each_kafka, topic) == positions


@pytest.mark.nightly
def test_a_partition_without_a_leader_keeps_no_other_from_being_read(spark: SparkSession, tmp_path: Path) -> None:
    """Neither while the job runs nor when it starts; without a group, whose coordinator may be away, too."""
    some = [Record(b"%d" % number) for number in range(20)]
    with kafka_cluster(VERSIONS[-1], tmp_path / "brokers", 2) as (first, second), producer(first) as through:
        here, there = 0, 1
        create_topic(first, "led", replicas=[[1], [2]])
        config = config_of(first, tmp_path / "lake", "led", group="")
        with running_job(spark, config) as job:
            for partition in (here, there):
                send(through, "led", some, partition)
            wait_until(lambda: has_all(job, config), "all of both")
            second.kill()
            send(through, "led", some, here)
            wait_until(lambda: job.progress()[0].partitions[here].position == 40, lambda: str(job.progress()))
        with running_job(spark, config) as job:
            send(through, "led", some, here)
            wait_until(lambda: job.progress()[0].partitions[here].position == 60, lambda: str(job.progress()))
            second.start()
            send(through, "led", some, there)
            wait_until(lambda: has_all(job, config), "all of both")
        assert assert_replicated(tmp_path / "lake", first, "led") == 100


def test_retention_that_overtakes_the_replica(spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path) -> None:
    """Stopped or on record, as the configuration has it; the other partitions go on."""
    create_topic(newest_kafka, "overtaken", 3)
    with producer(newest_kafka) as through:
        for partition in range(3):
            send(through, "overtaken", [Record(b"%d" % number) for number in range(50)], partition)
        replicate_now(spark, config_of(newest_kafka, tmp_path, "overtaken"))
        for partition in range(3):
            send(through, "overtaken", [Record(b"%d" % number) for number in range(50)], partition)
    for partition, before in ((0, 70), (2, 80)):
        delete_records(newest_kafka, "overtaken", partition, before)
    with pytest.raises(BelowMinimum, match="70 or more") as raised:
        replicate_now(spark, config_of(newest_kafka, tmp_path, "overtaken"))
    assert (raised.value.log, raised.value.offset) == ("kafka/test/overtaken/0", 50)
    assert group_offsets(newest_kafka, "overtaken") == {0: 50, 1: 100, 2: 50}

    replicate_now(spark, config_of(newest_kafka, tmp_path, "overtaken", on_loss="record"))
    state = state_of(spark, tmp_path, "overtaken")
    assert {number: [(hole.start, hole.end) for hole in one.holes] for number, one in state.partitions.items()} == {
        0: [(50, 70)], 1: [], 2: [(50, 80)],
    }  # fmt: skip
    incidents = table(tmp_path, "incidents", "log_id", "condition", "start", "end", "action").to_pylist()
    assert sorted(tuple(row.values()) for row in incidents) == [
        ("kafka/test/overtaken/0", "below_minimum", 50, 70, "skipped"),
        ("kafka/test/overtaken/2", "below_minimum", 50, 80, "skipped"),
    ]
    assert_replicated(tmp_path, newest_kafka, "overtaken", start=50)
    assert_accounted(spark, tmp_path, "overtaken")
    assert group_offsets(newest_kafka, "overtaken") == {0: 100, 1: 100, 2: 100}


# through Spark's data source alone


def held(broker: KafkaBroker, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Row]:
    """What a consumer reads of all partitions, one after the other."""
    numbers = topic_of(broker, topic).leaders
    return [row for number in numbers for row in consumed(broker, topic, isolation, number)]


def by_place(found: list[Row]) -> list[Row]:
    """Sorted here, because Spark would read them twice."""
    return sorted(found, key=lambda row: (row[3], row[0]))


def test_a_batch_read_is_what_a_consumer_reads(spark: SparkSession, newest_kafka: KafkaBroker) -> None:
    register(spark)
    create_topic(newest_kafka, "streamed", 3)
    send_mixed(newest_kafka, "streamed", 3, 3 * 5 * 40, random.Random(31))
    read = spark.read.format("logtwin").options(id="kafka/east/streamed", servers=newest_kafka.server)
    # pieces of which the last ones hold nothing but what was aborted, and answers of less than a batch
    committed = read.options(splitOffsets="30", chunkBytes="500").load().toArrow()
    assert committed.column_names == TOPIC_SCHEMA.names
    assert by_place(rows(committed)) == held(newest_kafka, "streamed")
    assert committed.num_rows == 3 * (5 * 40 + 2 * 8)
    logs = [f"kafka/east/streamed/{partition}" for partition in committed["partition"].to_pylist()]
    assert committed["log_id"].to_pylist() == logs

    everything = spark.read.format("logtwin").options(id="kafka/east/streamed", servers=newest_kafka.server)
    uncommitted = by_place(rows(everything.option("isolation", "read_uncommitted").load().toArrow()))
    assert uncommitted == held(newest_kafka, "streamed", Isolation.READ_UNCOMMITTED)
    assert len(uncommitted) == 3 * (5 * 40 + 5 * 8)
    assert everything.option("startingOffset", "latest").load().count() == 0
