"""Names, and patterns for them: of topics in ``from``, of databases and tables. Pure.

Each text is a name, or a regular expression for whole names. A name has only letters that topics' names have; any other
text is a pattern: ``orders.eu`` is one topic, ``orders-.*`` are many. Of ``kafka/<cluster>/<topic>`` only the topic may
be a pattern. Python and Spark's SQL, so Java, both have to read a pattern, and in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9%|._/-]+")
_READ_DIFFERENTLY: Final = re.compile(r"&&|\(\?P|\\[ZGQENk]|\[[^\]]*\[")


def is_pattern(text: str) -> bool:
    return _NAME.fullmatch(text) is None


def check_topic(text: str) -> None:
    """Raise ValueError for a pattern that is no regular expression, or that Python and Java read differently."""
    if not is_pattern(text):
        return
    if is_pattern(text.rpartition("/")[0] or "x"):
        raise ValueError(f"a pattern only of the topic, and not {text!r}")
    if _READ_DIFFERENTLY.search(text) is not None:
        raise ValueError(f"a plain regular expression, without named groups and nested classes, and not {text!r}")
    try:
        re.compile(expression(text))
    except re.error as error:
        raise ValueError(f"a topic, or a regular expression, and not {text!r}: {error}") from error


def expression(text: str) -> str:
    """The regular expression of a pattern, with its ``kafka/<cluster>/`` as it is written."""
    before, slash, topic = text.rpartition("/")
    return f"{re.escape(before + slash)}(?:{topic})"


def is_meant(topic: str, texts: Iterable[str]) -> bool:
    return any(topic == one or (is_pattern(one) and re.fullmatch(expression(one), topic) is not None) for one in texts)
