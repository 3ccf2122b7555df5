"""Topics of a pattern come and go, at a real broker, while a job replicates others of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.job import roll_call
from pipeline.monitoring.progress import Phase, Progress
from tests.patience import meanwhile, wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_traffic import Record, create_topic, delete_topic, producer, send
from tests.peers.kafka_twin import assert_accounted, assert_replicated, table
from tests.peers.replicating import running_job

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(300)]

OLD, NEW = "grow-old", "grow-new"


def test_a_topic_that_comes_under_load_is_read_from_its_first_record_and_one_that_leaves_waits(
    spark: SparkSession, newest_kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typed table of the pattern has its messages, too."""
    monkeypatch.setattr(roll_call, "ASK_EVERY_S", 1.0)
    create_topic(newest_kafka, OLD, 2)
    topics = {"cluster": "test", "pattern": "grow-.*", "servers": newest_kafka.server, "starting_offset": "latest"}
    typed = {"name": "grown", "from": ["kafka/test/grow-.*"], "format": "text"}
    job_keys = {"warehouse": str(tmp_path), "trigger_interval_s": 0.2, "retry_wait_max_s": 1.0}
    with (
        producer(newest_kafka) as through,
        running_job(spark, parse({**job_keys, "topics": [topics], "tables": [typed]}, where="test")) as job,
    ):
        sent: list[int] = []

        def progress(topic: str) -> Progress | None:
            return next((one for one in job.progress() if one.log_id == f"kafka/test/{topic}"), None)

        def send_one() -> None:
            sent.extend(send(through, OLD, [Record(b"old")], len(sent) % 2))

        def reached(topic: str, count: int) -> bool:
            one = progress(topic)
            return one is not None and one.position == count

        with meanwhile(send_one, every_s=0.02):
            wait_until(
                lambda: len(sent) > 20 and (getattr(progress(OLD), "records", 0) or 0) > 0, "records of the first"
            )
            create_topic(newest_kafka, NEW, 2)
            for partition in range(2):
                send(through, NEW, [Record(b"new")] * 10, partition)
            wait_until(lambda: reached(NEW, 20), lambda: f"the topic that came: {job.progress()}")
        wait_until(lambda: reached(OLD, len(sent)), lambda: f"{len(sent)}: {progress(OLD)}")
        assert assert_replicated(tmp_path, newest_kafka, OLD, NEW) == len(sent) + 20
        wait_until(
            lambda: table(tmp_path, "tables/grown", "text").column(0).to_pylist().count("new") == 20, "the typed table"
        )

        delete_topic(newest_kafka, NEW)
        wait_until(lambda: getattr(progress(NEW), "unlisted", None) is True, lambda: f"unlisted: {progress(NEW)}")
        send(through, OLD, [Record(b"more")] * 5, 0)
        wait_until(lambda: reached(OLD, len(sent) + 5), lambda: f"the other goes on: {progress(OLD)}")
        left = progress(NEW)
        assert left is not None
        assert left.phase in (Phase.RUNNING, Phase.WAITING)
    for topic in (OLD, NEW):
        assert_accounted(spark, tmp_path, topic)
