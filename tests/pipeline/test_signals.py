"""A signal asks a program to stop; who asks twice does not wait."""

from __future__ import annotations

import signal

import pytest

from pipeline.system.signals import stop_by_signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_is_the_systems(number: signal.Signals) -> None:
    before, asked = signal.getsignal(number), list[str]()
    with stop_by_signal(lambda: asked.append("stop")):
        signal.raise_signal(number)
        assert asked == ["stop"]
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(number) == before
