"""Real brokers, one of a version for a module of tests; figures that the tests report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.peers.rocketmq import Broker

Report = Callable[[str], None]
_figures = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    """Takes a line for the end of pytest's output: a figure that is worth knowing and nothing to assert."""
    return pytestconfig.stash.setdefault(_figures, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_figures, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)


def _broker(version: str, directories: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(version, directories.mktemp(f"broker-{version}")) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker_497(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running 4.9.7 broker, a lone master with segment files of 1 MiB."""
    yield from _broker("4.9.7", tmp_path_factory)


@pytest.fixture(scope="module")
def broker_550(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running 5.5.0 broker, a lone master with segment files of 1 MiB."""
    yield from _broker("5.5.0", tmp_path_factory)
