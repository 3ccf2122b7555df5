"""Connections to clusters that stay open between questions (`sources.access.kept_connections`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from sources.access.kept_connections import KeptConnections
from sources.kafka.cluster.connection import Cluster, connected
from sources.kafka.cluster.settings import KafkaSettings

_answered: set[tuple[str, ...]] = set()


@contextmanager
def _connected(settings: KafkaSettings) -> Iterator[Cluster]:
    with connected(settings) as cluster:
        _answered.add(settings.servers)
        yield cluster


_cache: Final = KeptConnections[KafkaSettings, Cluster](_connected)


def kept(settings: KafkaSettings) -> AbstractContextManager[Cluster]:
    """Like `connected`, but leave the connection open for the next use, unless what is done inside fails."""
    return _cache.kept(settings)


def has_answered(settings: KafkaSettings) -> bool:
    """Whether this process has ever reached one of these servers."""
    return settings.servers in _answered
