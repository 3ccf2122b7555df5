"""sinks.delta.hooks: what commits leave to do, in which thread, and what becomes of a checkpoint that fails."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from sinks.delta import hooks
from sinks.delta.hooks import Hooks, wait_for_checkpoints
from sinks.delta.kernel import KernelTable
from tests.patience import wait_until
from tests.sinks.batches import Solo, ranges
from tests.sinks.memory_master import MemoryMaster


class Commits:
    """Commits to a table, each with a hook; `ran` are the versions whose hooks ran, and whether in another thread.

    A checkpoint ends once `goes_on` is set.
    """

    def __init__(self, path: str, *, domains: int = 0) -> None:
        self.hooks = Hooks(None, path, are_remote=False)
        self.hooks.domains = domains
        self.ran: list[tuple[int, bool]] = []
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def commit(self, version: int, failure: Exception | None = None) -> None:
        ours = threading.current_thread()

        def invoke(_: object) -> None:
            self.begun.set()
            if is_aside := threading.current_thread() is not ours:
                self.goes_on.wait(60)
            if failure is not None:
                raise failure
            self.ran.append((version, is_aside))

        kind = "ANOTHER" if version % 10 else "CHECKPOINT"
        self.hooks.add(version, [SimpleNamespace(getType=lambda: kind, threadSafeInvoke=invoke)])
        self.hooks.run(checkpoint_aside=True)


def test_a_checkpoint_is_written_aside_one_at_a_time_and_the_newest_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_aside", hooks._Aside())
    one, other = Commits("/lake/log", domains=101), Commits("/lake/ledger")
    one.commit(10)
    wait_until(one.begun.is_set, "the first to begin")
    for version in (11, 20, 30):
        one.commit(version)
    other.commit(10)
    other.goes_on.set()
    assert (one.ran, other.ran) == ([(11, False)], [])
    assert not wait_for_checkpoints(0.0)
    assert not one.hooks.take_news()
    one.goes_on.set()
    assert wait_for_checkpoints(60)
    assert (one.ran, other.ran) == ([(11, False), (10, True), (30, True)], [(10, True)])
    assert [one.hooks.take_news(), one.hooks.take_news(), other.hooks.take_news()] == [True, False, False]


class OfAJvmThatIsGone(Exception):
    def __str__(self) -> str:
        raise Py4JError("an answer is missing")

    def __repr__(self) -> str:
        return "no space left"


CAUSE = SimpleNamespace(toString=lambda: "no space left", getCause=lambda: None)
OF_JAVA = Py4JJavaError(
    "An error occurred while calling o1186.threadSafeInvoke.\n",
    SimpleNamespace(_target_id="o1", _gateway_client=None, toString=lambda: "KernelException", getCause=lambda: CAUSE),
)


@pytest.mark.parametrize(
    "failure", [Py4JError("no space left\n\tat java"), OF_JAVA, RuntimeError("no space left"), OfAJvmThatIsGone()]
)
def test_a_checkpoint_that_fails_is_told_and_the_next_is_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    monkeypatch.setattr(hooks, "_aside", hooks._Aside())
    table = Commits("/lake/log", domains=101)
    table.goes_on.set()
    table.commit(10, failure=failure)
    assert wait_for_checkpoints(60)
    assert not table.hooks.take_news()
    (said,) = caplog.messages
    assert said.startswith("version 10 of the table /lake/log is committed, but has no checkpoint: no space left.")
    assert "Nothing is lost" in said and "logtwin maintain" in said
    table.commit(20)
    assert wait_for_checkpoints(60)
    assert table.ran == [(20, True)]


@pytest.mark.job
def test_a_start_and_a_batch_have_checkpoints_made_beside_what_follows(
    plain: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the log table and the ledger, which would else be read from their first entry on."""
    ran = list[tuple[str, bool]]()

    noted = lambda table, *, checkpoint_aside=False: ran.append((Path(table.path).name, checkpoint_aside))  # noqa: E731
    monkeypatch.setattr(KernelTable, "run_hooks", noted)
    replica = Solo(plain, str(tmp_path / "lake"), MemoryMaster((100,)))
    replica.open()
    assert ("log", True) in ran
    ran.clear()
    replica(ranges(0, 100))
    assert {("log", True), ("ledger", True)} <= {*ran}
