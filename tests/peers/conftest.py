"""Real brokers, one of a version for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.rocketmq import Broker


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
