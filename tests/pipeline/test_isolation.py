"""What ends one log ends no other log of its job; and while a job goes on a master that fails holds up no other.

That it costs others no more than a second: `tests/soak/test_isolation.py`, on a quiet machine.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sources.errors import ConfigurationError, CorruptRecord, LogtwinError, MasterError, OffsetOutOfRange, Rewritten
from sources.offsets import Offset
from sources.rocketmq.wire.remoting import Command, encode_command
from tests.deaf_port import deaf_port
from tests.pipeline.faulty_link import Fault
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.isolation import STEADY, World, settled_world
from tests.pipeline.read_back import assert_whole, rebuilt
from tests.pipeline.running import replicate_now
from tests.sources.rocketmq.scripted_master import ScriptedBroker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def world(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled_world(session, tmp_path_factory.mktemp("isolation")) as made:
        yield made


@pytest.mark.parametrize(
    ("fault", "is_of_all"),
    [
        (Fault.SILENT, False),  # it says what it holds, and does not send it: each batch has to find out anew
        (Fault.DRIPPING, True),
        (Fault.GONE, True),
        pytest.param(Fault.SILENT, True, marks=pytest.mark.nightly),
        pytest.param(Fault.DRIPPING, False, marks=pytest.mark.nightly),
    ],
    ids=lambda one: one.value if isinstance(one, Fault) else "everywhere" if one else "where it sends",
)
def test_a_master_that_fails_holds_up_no_other_log(world: World, fault: Fault, is_of_all: bool) -> None:
    with world.failing(fault, is_of_all=is_of_all):
        for log_id in STEADY:
            world.reach(log_id)
    world.reach("rocketmq/linked")


SOUND = ("rocketmq/a", "rocketmq/b")


def config_of(lake: Path, logs: dict[str, FaultyLog], **others: dict[str, object]) -> Config:
    given: list[dict[str, object]] = [{"id": log_id, "path": str(log.path)} for log_id, log in logs.items()]
    given += [{"id": f"rocketmq/{name}", **options} for name, options in others.items()]
    settings = {"trigger_interval_s": 0.05, "metadata": {"enabled": False}}
    return parse({"warehouse": str(lake), **settings, "logs": given}, where="test")


def hostile(request: Command) -> bytes:
    """Two million quotes without an end. How long parsing takes: tests/test_growth.py."""
    return encode_command(request.response(0, body=b'"' + b'\\"' * 2_500_000))


def test_what_ends_one_log_ends_no_other(session: SparkSession, tmp_path: Path) -> None:
    names = (*SOUND, "rocketmq/cut", "rocketmq/rewritten", "rocketmq/damaged")
    logs = {log_id: FaultyLog(tmp_path / log_id) for log_id in names}
    for log_id, log in logs.items():
        log.append(random.Random(log_id), 20)
    lake = tmp_path / "lake"
    replicate_now(session, config_of(lake, logs))

    cut, rewritten, damaged = (logs[log_id] for log_id in names[2:])
    cut.lose_a_record()
    rewritten.rewrite_from_the_middle()
    for log_id in (*SOUND, "rocketmq/damaged"):
        logs[log_id].append(random.Random(f"more {log_id}"), 100)
    bad = damaged.messages[40]  # not in the newest file, where it would be the end of the log so far
    before = damaged.data()[:bad]
    damaged.flip(Offset(bad + 95))
    with ScriptedBroker(hostile) as broker:
        address = f"127.0.0.1:{deaf_port()}"
        gone = {"master": address, "remoting": address, "connect_attempts": 1}
        odd: dict[str, object] = {"master": str(broker.address), "remoting": str(broker.address)}
        config = config_of(lake, logs, wrong={"path": str(tmp_path / "nowhere")}, gone=gone, hostile=odd)
        job = Job(session, config, available_now=True)
        with pytest.raises(LogtwinError):
            job.start(poll_interval_s=0.01)
            job.run(poll_interval_s=0.01)

    errors = {one.id: one.error for one in job.logs if one.error is not None}
    kinds = {"cut": OffsetOutOfRange, "rewritten": Rewritten, "damaged": CorruptRecord, "gone": MasterError,
             "wrong": ConfigurationError, "hostile": MasterError}  # fmt: skip
    assert errors.keys() == {f"rocketmq/{name}" for name in kinds}
    for name, kind in kinds.items():
        assert isinstance(errors[f"rocketmq/{name}"], kind), errors[f"rocketmq/{name}"]
    assert errors["rocketmq/damaged"].offset == bad
    assert {one.id for one in job.logs if one.phase is Phase.FAILED} == errors.keys()
    for log_id in SOUND:
        assert_whole(lake, logs[log_id].data(), log_id)
    assert rebuilt(lake, "rocketmq/damaged") == before  # what is sound before it
