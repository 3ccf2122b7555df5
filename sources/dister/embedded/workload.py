"""A workload for a leader: changes made from a seed, the same ones for the same seed.

It is what a small company keeps in such a store: settings, stock, sessions that come and go. Some writes fail: they use
an id, and nobody sees them.
"""

from __future__ import annotations

import random
from typing import Final

from sources.dister.embedded.leader_log import Change, LeaderLog

_SHARE_OF_REMOVES: Final = 0.15
_SHARE_OF_SEVERAL: Final = 0.1
_SHARE_OF_FAILED: Final = 0.01
_SESSIONS: Final = 500
_PRODUCTS: Final = ("teapot", "Fahrradkette", "毛笔", "книга", "café crème", 'lamp "Søren"', "<boots> & laces")
_SETTINGS: Final = ("currency", "opening/hours", "mail.footer", "limits/basket", "théme")
_WORDS: Final = ("on", "off", "3 €", "08:00-18:30", "line one\nline two", "a\tb", "—", "", "🚲")


class Workload:
    """The state of one endless sequence of writes."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311  (a workload is no secret)

    def write(self, leader: LeaderLog) -> int | None:
        """Do the next write. Return the entry's id; None if the write failed."""
        change = self._change()
        if self._chance.random() < _SHARE_OF_FAILED:
            leader.fail(change)
            return None
        return leader.write(change)

    def _change(self) -> Change:
        """Return a change that sets or removes one or several keys."""
        several = self._chance.randrange(2, 6) if self._chance.random() < _SHARE_OF_SEVERAL else 1
        if self._chance.random() < _SHARE_OF_REMOVES:
            return [self._session() for _ in range(several)]
        return dict(self._pair() for _ in range(several))

    def _pair(self) -> tuple[str, str]:
        return self._chance.choice((self._setting, self._stock, self._login))()

    def _setting(self) -> tuple[str, str]:
        return f"settings/{self._chance.choice(_SETTINGS)}", self._chance.choice(_WORDS)

    def _stock(self) -> tuple[str, str]:
        return f"stock/{self._chance.choice(_PRODUCTS)}", str(self._chance.randrange(1000))

    def _login(self) -> tuple[str, str]:
        return self._session(), f'{{"user":{self._chance.randrange(100)},"basket":{self._chance.randrange(9)}}}'

    def _session(self) -> str:
        return f"session/{self._chance.randrange(_SESSIONS):04d}"
