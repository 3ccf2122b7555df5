"""A job whose configuration has patterns, while brokers come and go."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.config.found import found_now
from pipeline.inspect.status import statuses
from pipeline.job import roll_call
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase, Progress
from sources.datasource import register
from sources.rocketmq.producer.workload import send_workload, workload
from tests.patience import wait_until
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.read_back import assert_whole
from tests.sources.rocketmq.name_servers import ScriptedNameServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_broker_that_comes_is_read_and_one_that_leaves_waits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query goes on: nobody disturbs the others. What b had before it was found is in the table, too."""
    monkeypatch.setattr(roll_call, "ASK_EVERY_S", 0.2)
    register(spark)
    lake = tmp_path / "lake"
    with ExitStack() as stack:
        masters = {name: stack.enter_context(embedded_master(tmp_path / name, broker_name=name)) for name in ("a", "b")}
        for number, one in enumerate(masters.values(), 1):
            send_workload(one.master.address, workload(number), count=50)
        server = stack.enter_context(ScriptedNameServer({"c1": {"a": masters["a"].master.address}}))
        entry = {
            "cluster": "c1", "name_server": str(server.address), "starting_offset": "latest",
            "connect_timeout_ms": 1000, "connect_attempts": 1,
        }  # fmt: skip
        waits = {"trigger_interval_s": 0.1, "retry_wait_max_s": 0.5}
        given = {"warehouse": str(lake), "logs": [entry], **waits, "metadata": {"enabled": False}}
        config = parse(given, where="test")
        job = Job(spark, config, available_now=False)
        stack.callback(job.close)
        job.start()

        def progress() -> dict[str, Progress]:
            job.poll()
            return {one.log_id: one for one in job.progress()}

        def has_all(name: str, one: Served) -> bool:
            found = progress().get(f"rocketmq/{name}")
            return found is not None and found.position == one.end

        def is_begun() -> bool:
            send_workload(masters["a"].master.address, workload(3), count=1)  # what is newer than the latest
            return progress()["rocketmq/a"].position is not None

        wait_until(is_begun, lambda: f"a: {progress()}", look_every_s=0.2)
        wait_until(lambda: has_all("a", masters["a"]), lambda: f"a: {progress()}")
        query = next(iter(job._groups.values()))._stream._query
        server.clusters["c1"] = {name: one.master.address for name, one in masters.items()}
        wait_until(lambda: has_all("b", masters["b"]), lambda: f"b: {progress()}")

        server.clusters["c1"] = {"a": masters["a"].master.address}
        wait_until(lambda: progress()["rocketmq/b"].unlisted is True, "b unlisted")
        wait_until(
            lambda: {one.log_id: one.unlisted for one in statuses(found_now(config))}["rocketmq/b"] is True, "status"
        )
        send_workload(masters["a"].master.address, workload(4), count=50)
        wait_until(lambda: has_all("a", masters["a"]), lambda: f"a: {progress()}")
        assert next(iter(job._groups.values()))._stream._query is query
        assert {one.phase for one in job.progress()} <= {Phase.RUNNING, Phase.WAITING}
        server.clusters["c1"] = {name: one.master.address for name, one in masters.items()}
        send_workload(masters["b"].master.address, workload(5), count=50)
        wait_until(lambda: has_all("b", masters["b"]), lambda: f"b again: {progress()}")
        wait_until(lambda: progress()["rocketmq/b"].unlisted is False, "b listed")
        job.close()  # the ledger follows a commit
        assert_whole(lake, masters["b"].log(), "rocketmq/b")
