"""What is asked again, how long, and what is not."""

from __future__ import annotations

import pytest

from sources.errors import (
    BelowMinimum,
    ConfigurationError,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    Recreated,
)
from sources.kafka.cluster.retries import ask_again

MINUTE_MS = 60_000


class Failing:
    """Answers after `times` errors of a kind."""

    def __init__(self, error: type[Exception], times: int) -> None:
        self._error = error
        self._times = times
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self._times:
            raise self._error(f"failure {self.asked}")
        return "answer"


@pytest.mark.parametrize("error", [MasterUnreachable, MasterSilent, MasterRefused])
def test_what_may_pass_is_asked_again(error: type[LogtwinError]) -> None:
    failing = Failing(error, 2)
    assert (ask_again(failing, patience_ms=MINUTE_MS), failing.asked) == ("answer", 3)


@pytest.mark.parametrize("error", [BelowMinimum, Recreated, ConfigurationError, ValueError])
def test_what_does_not_pass_is_raised_at_once(error: type[Exception]) -> None:
    failing = Failing(error, 1)
    with pytest.raises(error, match="failure 1"):
        ask_again(failing, patience_ms=MINUTE_MS)
    assert failing.asked == 1


def test_patience_ends_with_the_last_error() -> None:
    failing = Failing(MasterRefused, 1000)
    with pytest.raises(MasterRefused, match="failure") as raised:
        ask_again(failing, patience_ms=300)
    assert failing.asked > 1
    assert raised.value.problem == f"failure {failing.asked}"
