"""Which modules of tests an expression of marks (``pytest -m``) leaves out as a whole: they need not be imported."""

import re
from functools import cache
from pathlib import Path


@cache
def left_out(expression: str) -> frozenset[str]:
    """The marks that no test has which `expression` takes: each `not MARK` of a conjunction."""
    terms = re.sub(r"\([^()]*\)", "…", expression)
    return frozenset() if re.search(r"\bor\b|[()]", terms) else frozenset(re.findall(r"\bnot (\w+)", terms))


def marks(module: Path) -> list[str]:
    """The marks that all tests of this module have: those of its line ``pytestmark =``."""
    line = re.search(r"^pytestmark = (\[[^\]]*|.*)", module.read_text(), re.MULTILINE)
    return re.findall(r"pytest\.mark\.(\w+)", line[1]) if line else []
