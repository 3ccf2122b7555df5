"""A job beside a real broker: it runs in a thread, as it does for a user, while the test sends and kills."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job.replicate import Job
from sources.datasource import register
from tests.patience import PATIENCE_S, wait_until
from tests.peers.rocketmq import Broker
from tests.peers.sender import Sent
from tests.peers.wire import Connection
from tests.pipeline.read_back import assert_whole

STOP_WITHIN_S = 120.0


@contextmanager
def replicating(
    spark: SparkSession,
    warehouse: Path,
    broker: Broker,
    metadata: Mapping[str, float] | None = None,
    /,
    *,
    trigger_interval_s: float = 1.0,
    **log: Any,
) -> Iterator[Job]:
    """A job on `broker`, stopped at the end. Raises what ended it before. `metadata` is when to fetch that."""
    addresses = {} if {"name_server", "controllers"} & log.keys() else broker.options
    given: dict[str, Any] = {
        "warehouse": str(warehouse),
        "trigger_interval_s": trigger_interval_s,
        "retry_wait_max_s": 1.0,
    }
    given |= {"metadata": dict(metadata)} if metadata else {}
    config = parse({**given, "logs": [{"id": "rocketmq/b1", **addresses, **log}]}, where="test")
    with running_job(spark, config) as job:
        yield job


@contextmanager
def running_job(spark: SparkSession, config: Config) -> Iterator[Job]:
    """Stopped at the end. Raises what ended it before."""
    register(spark)
    job = Job(spark, config, available_now=False)
    job.start()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run)
        try:
            yield job
        finally:
            job.request_stop()
            running.result(STOP_WITHIN_S)


def end_of(broker: Broker) -> int:
    with Connection(broker.port) as connection:
        return connection.log_bounds().end


def wait_for_all(job: Job, broker: Broker, within_s: float = PATIENCE_S) -> None:
    """Until the replica has committed what the broker holds now."""
    wait_for_position(job, end_of(broker), within_s)


def wait_for_position(job: Job, end: int, within_s: float = PATIENCE_S) -> None:
    """Until the replica has committed up to `end`."""
    wait_until(
        lambda: (job.progress()[0].position or 0) >= end, lambda: f"{end} in Delta: {job.progress()[0]}", within_s
    )


def wait_for_answer(send: Callable[[], Sent], code: int, *, times: int = 3) -> None:
    """Until that many sends in a row, one after the other, are answered with `code`."""
    in_a_row = [0]

    def holds() -> bool:
        in_a_row[0] = in_a_row[0] + 1 if send().code == code else 0
        return in_a_row[0] == times

    wait_until(holds, f"answers with code {code}")


def assert_holds(warehouse: Path, sent: list[Sent], topic: str) -> None:
    """Every message that was answered OK is in the table, at the offset that the answer named, and none twice."""
    table = DeltaTable(str(warehouse / "log")).to_pyarrow_table(columns=["topic", "offset", "unique_key"])
    rows = [row for row in table.to_pylist() if row["topic"] == topic]
    found = {(row["offset"], row["unique_key"]) for row in rows}
    assert {(one.offset, one.unique_key) for one in sent if one.is_ok} <= found
    assert len(rows) == len({offset for offset, _ in found}) == len({key for _, key in found})


def assert_same_as_files(warehouse: Path, job: Job, broker: Broker) -> None:
    """The table of a job that has ended is the broker's log, byte for byte, once."""
    one = job.progress()[0]
    assert_whole(warehouse, broker.log_bytes(one.position or 0), one.log_id)
