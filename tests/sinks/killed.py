"""A kill, as far as the code under test can tell."""

from collections.abc import Callable


class Killed(BaseException):
    """Nothing of ours handles it."""


def killed(*_: object, **__: object) -> None:
    """In the place of what the kill comes before."""
    raise Killed


def dying_after(step: object) -> Callable[[object], None]:

    def die(reached: object) -> None:
        if reached is step:
            raise Killed

    return die
