"""What is known of clusters that were reached; `tests/sources/test_kept_connections.py` has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sources.kafka.cluster import connection_cache as module
from sources.kafka.cluster.connection_cache import has_answered, kept
from sources.kafka.cluster.settings import KafkaSettings

ONE, OTHER = KafkaSettings(servers=("one.invalid:9092",)), KafkaSettings(servers=("other.invalid:9092",))


def test_who_has_answered_once_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then that nobody listens may be a restart, which is waited out."""

    @contextmanager
    def connected(settings: KafkaSettings) -> Iterator[object]:
        yield object()

    monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(module, "_answered", set())
    with pytest.raises(LookupError), kept(ONE):  # so that it is not kept
        raise LookupError
    assert (has_answered(ONE), has_answered(OTHER)) == (True, False)
