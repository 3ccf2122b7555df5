"""Connections to clusters that stay open between questions; otherwise each look would connect and log in again.

They belong to this process and serve whoever asks next. A connection that broke meanwhile is replaced, and the
credentials are read again. A connection over which a question has failed is not kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from sources.kafka.cluster.connection import Cluster, connected
from sources.kafka.cluster.settings import KafkaSettings

MOST: Final = 8
"""The most connections kept per cluster. If all are in use, a further one is made, and closed afterwards."""

IDLE_S: Final = 60.0
"""How long an unused connection is kept. Brokers themselves close connections that are idle for ten minutes."""


@dataclass(eq=False, slots=True)
class _Open:
    cluster: Cluster
    closing: ExitStack
    since_s: float = 0.0


_waiting: dict[KafkaSettings, list[_Open]] = {}
_answered: set[tuple[str, ...]] = set()
_lock = threading.Lock()


@contextmanager
def kept(settings: KafkaSettings) -> Iterator[Cluster]:
    """Like `connected`, but leave the connection open for the next use, unless what is done inside fails."""
    opened = _take(settings) or _connect(settings)
    with ExitStack() as failing:
        failing.push(opened.closing)
        yield opened.cluster
        failing.pop_all()
    _keep(settings, opened)


def has_answered(settings: KafkaSettings) -> bool:
    """Whether this process has ever reached one of these servers."""
    return settings.servers in _answered


def _connect(settings: KafkaSettings) -> _Open:
    with ExitStack() as closing:
        cluster = closing.enter_context(connected(settings))
        _answered.add(settings.servers)
        return _Open(cluster, closing.pop_all())


def _take(settings: KafkaSettings) -> _Open | None:
    """Return the connection that was used last; close those that broke."""
    while True:
        with _lock:
            waiting = _waiting.get(settings)
            found = waiting.pop() if waiting else None
        if found is None or found.cluster.is_whole():
            return found
        found.closing.close()


def _keep(settings: KafkaSettings, opened: _Open) -> None:
    opened.since_s = now_s = time.monotonic()
    with _lock:
        _waiting.setdefault(settings, []).append(opened)
        out = [one for waiting in _waiting.values() for one in waiting if now_s - one.since_s > IDLE_S]
        out += _waiting[settings][:-MOST]
        for name, waiting in list(_waiting.items()):
            _waiting[name] = [one for one in waiting if one not in out]
    for one in out:
        one.closing.close()
