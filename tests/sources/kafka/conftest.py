"""Fixtures of the tests of Kafka's side."""

import pytest

from sources.kafka import metadata, reader, topic
from tests.sources.kafka.scripted_cluster import Play, ScriptedCluster


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Has all connections answered by a script."""

    def from_now_on(*answers: object) -> ScriptedCluster:
        cluster = ScriptedCluster(*answers)
        for module, name in ((reader, "kept"), (topic, "kept"), (metadata, "connected")):
            monkeypatch.setattr(module, name, cluster.connected)
        return cluster

    return from_now_on
