"""Text of others, as people may see it: what commands a terminal, or hides what it does, is written as an escape. Pure.

Field names, remarks of brokers, topics and bodies come from people and programs that logtwin knows nothing of. On a
terminal a control character could clear the screen, or forge a line; one that turns the direction of writing makes a
text look like another. Whatever people read goes through `visible`. What programs read (JSON, CSV, Parquet) does not:
there a value stays what it is.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""The controls of C0 and C1, but for the line feed, those of writing direction, Unicode's line breaks, lone halves of
characters."""


def visible(text: str, *, lines: bool = False) -> str:
    """`text` with its control characters as escapes, such as ``\\x1b``; with `lines` it may have more than one line."""
    shown = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)
    return shown if lines else shown.replace("\n", r"\n")
