"""A warehouse of the time when each log had a query of its own is opened and goes on: nothing doubled, nothing lost."""

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, load
from sinks.books.topic_states import topics_held
from sinks.state.log_state import LogState
from sinks.state.log_table import LogTable
from sources.dister.embedded.leader import EmbeddedLeader
from sources.offsets import LogId
from tests.dister.twin import Twin
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_traffic import Record, producer, send
from tests.peers.kafka_twin import assert_accounted, assert_replicated, state_of
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.read_back import assert_whole, rebuilt, table_of
from tests.pipeline.running import replicate_now
from tests.truth import FIXTURES, unpack

pytestmark = pytest.mark.timeout(300)

ARCHIVE = FIXTURES / "before-the-group" / "before-the-group.tar.gz"
MESSAGES, MORE = 14, 20
NAMES = ("damaged", "repaired")


class Found:
    def __init__(self, session: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        unpack(ARCHIVE, folder)
        self.session = session
        self.folder = folder
        self.lake = folder / "lake"
        self.operator = Operator(folder, capsys)
        self.logs = {name: FaultyLog(folder / name) for name in NAMES}
        self.shop = Twin(session, folder / "shop", self.lake, "shop")
        self.configure()

    def configure(self, topic: str = "") -> None:
        logs: list[dict[str, object]] = [
            {"id": f"rocketmq/{name}", "path": log.path, "max_bytes_per_trigger": 5000}
            for name, log in self.logs.items()
        ]
        job = job_toml(self.folder, *logs, {"id": "dister/shop", "path": self.shop.folder}, trigger_interval_s=0.1)
        job.write_text(job.read_text() + topic)

    @property
    def config(self) -> Config:
        return load(self.operator.job)

    def write_on(self) -> None:
        moments = random.Random(7)
        for log in self.logs.values():
            log.append(moments, MORE)
        with EmbeddedLeader(self.shop.folder, group="shop", seed=8) as leader:
            for number in range(MORE):
                leader.write({f"key-{number % 7}": f"new {number}"})

    def state(self, name: str) -> LogState:
        state = LogTable(self.session, f"{self.lake}/log", LogId.parse(name)).read().state
        assert state is not None
        return state

    def rebuilt(self, name: str) -> bytes:
        return rebuilt(self.lake, f"rocketmq/{name}")

    def assert_whole(self, name: str) -> None:
        assert_whole(self.lake, self.logs[name].data(), f"rocketmq/{name}")


@pytest.fixture
def found(session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Found:
    return Found(session, tmp_path, capsys)


def test_the_logs_go_on_and_every_proof_holds(found: Found) -> None:
    before = {name: found.state(f"rocketmq/{name}") for name in NAMES}
    assert {name: state.epoch for name, state in before.items()} == {"damaged": 0, "repaired": 1}
    claimed = table_of(found.lake, "ledger", "rocketmq/damaged")["end"].to_pylist()[-1]
    assert claimed < (before["damaged"].offset or 0)  # its run was killed before the ledger
    checkpoints = files_below(found.lake / "_checkpoints")
    damaged = found.rebuilt("damaged")
    hole = found.logs["damaged"].data().find(damaged[-50:]) + 50 - len(damaged)
    assert hole > 0

    found.write_on()
    found.operator.replicates()
    after = {name: found.state(f"rocketmq/{name}") for name in NAMES}
    assert {name: (state.epoch, state.offset) for name, state in after.items()} == {
        "damaged": (0, found.logs["damaged"].end),
        "repaired": (1, found.logs["repaired"].end),
    }
    found.assert_whole("repaired")
    found.shop.assert_equal()
    assert len(found.rebuilt("damaged")) == len(found.logs["damaged"].data()) - hole
    assert files_below(found.lake / "_checkpoints") == checkpoints  # nobody looks at them any more

    said = json.loads(found.operator.must("status", "--json").out)["logs"]
    assert {one["id"]: (one["position"], one["epoch"], one["phase"]) for one in said} == {
        "rocketmq/damaged": (found.logs["damaged"].end, 0, "done"),
        "rocketmq/repaired": (found.logs["repaired"].end, 1, "done"),
        "dister/shop": (found.shop.position, 0, "done"),
    }
    assert "checksum_failure" in found.operator.must("incidents list").out
    found.operator.must("coverage")
    path = str(found.logs["damaged"].path)  # the master's disk was mended
    found.operator.must("backfill", "--log", "rocketmq/damaged", "--path", path)
    found.assert_whole("damaged")
    found.operator.must("coverage")
    found.operator.must("verify", "--restart")


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "kafka" not in path.parts}


@pytest.mark.peer
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("session", ["spark"], indirect=True)
def test_a_topic_goes_on_beside_them(spark: SparkSession, found: Found) -> None:
    before = topics_held(str(found.lake))[LogId("kafka", "test/orders")]  # all in one piece
    for_ever = {"log.retention.ms": -1}
    with KafkaBroker(VERSIONS[-1], found.folder / "kafka", for_ever) as broker:
        found.configure(f'[[topics]]\ncluster = "test"\ntopics = ["orders"]\nservers = "{broker.server}"\n')
        with producer(broker) as through:
            for partition in range(2):
                send(through, "orders", [Record(b"new %d" % number) for number in range(MORE)], partition)
        found.write_on()
        replicate_now(spark, found.config)
        rows = assert_replicated(found.lake, broker, "orders")
    assert rows == 2 * (2 * MESSAGES + MORE)
    assert_accounted(spark, found.lake, "orders")
    after = state_of(spark, found.lake, "orders")
    assert {after.topic_id} == {one.identity for one in before.values()}
    assert {number: one.offset for number, one in after.partitions.items()} == dict.fromkeys(range(2), rows // 2)
    assert not list(found.lake.rglob("*.disagreed-*"))
    found.assert_whole("repaired")
    found.shop.assert_equal()
