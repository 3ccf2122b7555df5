"""What happens around a call of the code under test: what another one does meanwhile, a wait, a kill."""

from collections.abc import Callable
from typing import Any

import pytest


def at_each(
    patch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    act: Callable[..., object],
    *,
    after: bool = False,
    when: Callable[..., object] = lambda *_, **__: True,
) -> None:
    """Do `act` before each call of ``owner.name``, or `after` it; `act` and `when` get what the call is given."""
    original = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        is_meant = when(*given, **named)
        if is_meant and not after:
            act(*given, **named)
        made = original(*given, **named)
        if is_meant and after:
            act(*given, **named)
        return made

    patch.setattr(owner, name, call)


def at_first(patch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], object], **how: Any) -> list[bool]:
    """Do `act` once, at the first such call, however it ends. Returns whether."""
    done: list[bool] = []

    def once(*_: Any, **__: Any) -> None:
        if not done:
            done.append(True)
            act()

    at_each(patch, owner, name, once, **how)
    return done
