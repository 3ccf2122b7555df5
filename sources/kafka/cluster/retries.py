"""Asking again as long as patience lasts, if an error may pass by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from sources.errors import LogtwinError

T = TypeVar("T")

_LONGEST_WAIT_S = 2


def ask_again(
    question: Callable[[], T],
    *,
    patience_ms: int,
    is_worth: Callable[[BaseException], bool] | None = None,
) -> T:
    """Return the answer to `question`, asked again after every error that a retry can help, until `patience_ms` passed.

    `is_worth` may decide otherwise which errors these are. Raises what `question` raised last.
    """
    retrying = Retrying(
        retry=retry_if_exception(is_worth or may_pass),
        stop=stop_after_delay(patience_ms / 1000),
        wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_S),
        reraise=True,
    )
    return retrying(question)


def may_pass(error: BaseException) -> bool:
    """Whether the same question may be answered later without anybody's help."""
    return isinstance(error, LogtwinError) and error.is_transient
