"""What is tried again: a commit that other writers may refuse, and how long the waits of other tries are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sinks.delta.kernel import KernelConflict

ATTEMPTS = 40
"""Of a commit. The stream commits each second or oftener: who needs the newest version has to come between two."""
FIRST_WAIT_S: Final = 1.0
"""Of a log, a partition, a typed table or a catalog, until it is tried again."""
_MOST_DOUBLINGS = 64
"""Beyond any wait, and far below the 1,024th, which no float can hold: a master may be away for days."""


def retrying(failure: Callable[[str], Exception]) -> Retrying:
    """How a commit is tried again after a KernelConflict: at random times, further and further apart, up to a second.

    Call it with the function that looks at the table anew and commits; or iterate it, ``for attempt in retrying(...):
    with attempt: ...``, where the block looks itself. Other errors are raised at once.
    After ATTEMPTS it raises what `failure` makes of that, as the `found` of an error.
    """

    def give_up(state: RetryCallState) -> None:
        conflict = None if state.outcome is None else state.outcome.exception()
        raise failure(f"a conflict at each of {state.attempt_number} attempts: {conflict}") from conflict

    return Retrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        retry=retry_if_exception_type(KernelConflict),
        retry_error_callback=give_up,
    )


def doubled_s(first_s: float, tries: int, most_s: float) -> float:
    """How long to wait after `tries` more in vain: `first_s`, twice that, and so on, but `most_s` at most."""
    return min(first_s * 2.0 ** min(tries, _MOST_DOUBLINGS), most_s)
