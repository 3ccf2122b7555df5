"""bench.sender: messages come at their rate."""

from __future__ import annotations

from collections.abc import Iterable

from bench.sender import BODY_BYTES, TICK_S, random_bodies, send_at_rate


class Taking:
    def __init__(self) -> None:
        self.sent: list[list[int]] = []

    def send(self, messages: Iterable[tuple[int, bytes]]) -> None:
        self.sent.append([number for number, body in messages if len(body) == BODY_BYTES])

    def stored(self) -> int:
        return sum(map(len, self.sent))


class Ticks:
    """A clock that goes on by what was late at each tick, too."""

    def __init__(self, *late_s: float) -> None:
        self.now_s = 100.0
        self._late_s = iter(late_s)

    def is_over(self, seconds: float) -> bool:
        late_s = next(self._late_s, None)
        self.now_s += seconds + (late_s or 0)
        return late_s is None


def test_what_is_due_is_sent_at_each_tick_also_after_a_late_one() -> None:
    taking, ticks = Taking(), Ticks(0, 0, 7 * TICK_S)
    rate = 2.001 / TICK_S  # two a tick, whatever the clock loses in its last digits
    assert send_at_rate(taking, random_bodies(), rate, ticks.is_over, lambda: ticks.now_s) == 20
    assert taking.sent == [[0, 1], [2, 3], list(range(4, 20))]
