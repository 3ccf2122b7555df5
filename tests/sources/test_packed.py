"""Values that are pickled as what their fields hold."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from sources.packed import packed
from tests.spans import span


@packed
@dataclass(frozen=True, slots=True)
class Pair:
    one: int
    other: tuple[str, ...] = ()


def test_a_value_comes_back_whole_and_is_checked_again() -> None:
    pair = Pair(1, ("a",))
    assert pickle.loads(pickle.dumps(pair)) == pair  # noqa: S301 - ours
    whole = pickle.dumps(span(3, 5), protocol=0)
    with pytest.raises(ValueError, match="not a range"):
        pickle.loads(whole.replace(b"I5", b"I1"))  # noqa: S301 - ours
