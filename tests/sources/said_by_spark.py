"""Our error in what Spark makes of it."""

from __future__ import annotations

import re

from sources.errors import LogtwinError, error_types

_SAID = re.compile(r"^sources\.errors\.(\w+): (.+)$", re.M)


def error_said(text: str) -> LogtwinError:
    """The last one that `text`, of an exception of Spark's, quotes: of its type, with the whole message as its problem.

    What people are not to read is not in it.
    """
    said = _SAID.findall(text)
    assert said, text[:4000]
    assert "logtwin-error" not in text
    assert "direct cause" not in text
    name, message = said[-1]
    return error_types()[name](message)
