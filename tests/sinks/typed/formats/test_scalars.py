"""What is a number of JSON; which one it is: `tests/fuzz/bodies.py`."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sinks.typed.formats.scalars import decimal_of, double_of, is_number, long_of


@given(st.text("0123456789+-.eE_ \n\u0663infaINFA", max_size=8))
def test_nothing_else_is_a_number(text: str) -> None:
    """What Python takes for a number is either one of JSON, or none here."""
    is_ours = is_number(text.encode())
    assert is_ours == (_is_json(text))
    for read in (long_of, double_of, lambda one: decimal_of(one, 38, 4)):
        assert is_ours or read(text.encode()) is None


def _is_json(text: str) -> bool:
    try:
        return text == text.strip() and not isinstance(json.loads(text, parse_constant=str), str)
    except ValueError:
        return False
