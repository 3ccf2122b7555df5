"""Connections to clusters that are kept between questions: a look each second would connect, and log in, as often.

They are this process's, for whoever asks next. One that broke meanwhile is not mended but made anew, with credentials
that are read anew; and none is kept over which a question has failed.
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
"""Of one cluster: who asks while all are in use has connections of his own, which are closed then."""

IDLE_S: Final = 60.0
"""Not asked for so long nobody looks any more. Brokers themselves close what is idle for ten minutes."""


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
    """As `connected`, and left open for the next one, unless what is done inside fails."""
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
    """The one that was used last; those that broke are closed."""
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
