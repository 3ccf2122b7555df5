"""A kill, as far as the code under test can tell."""

from __future__ import annotations

from collections.abc import Callable

from sinks.batch.result import BatchStep


class Killed(BaseException):
    """Nothing of ours handles it."""


def killed(*_: object, **__: object) -> None:
    """In the place of what the kill comes before."""
    raise Killed


def dying_after(step: BatchStep) -> Callable[[BatchStep], None]:

    def die(reached: BatchStep) -> None:
        if reached is step:
            raise Killed

    return die
