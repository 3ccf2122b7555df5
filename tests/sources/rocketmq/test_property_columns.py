"""Many blocks at once give what `properties.decode` gives of each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.rocketmq.columns.fields import PropertyColumns
from sources.rocketmq.format import properties
from tests.sources.rocketmq.test_properties import SEEN

# Bytes of which every second or third does something: both separators, text, a zero, one that is no UTF-8.
BLOCKS = st.lists(st.lists(st.sampled_from(b"ab\x01\x02\x01\x02\x00\xff"), max_size=24).map(bytes), max_size=8)
TIDY = b"TAGS\x01a\x02KEYS\x01k\x02"


def check(blocks: list[bytes]) -> None:
    columns = PropertyColumns.of(pa.array(blocks, pa.binary()))
    expected = [properties.decode(block) for block in blocks]
    found = columns.column()
    found.validate(full=True)
    assert [len(pairs) for pairs in found.to_pylist()] == [len(pairs) for pairs in expected]
    assert [dict(pairs) for pairs in found.to_pylist()] == expected
    for name in {name for pairs in expected for name in pairs} | {"no such name"}:
        assert columns.values_of(name).to_pylist() == [pairs.get(name) for pairs in expected]


@given(BLOCKS)
def test_any_blocks(blocks: list[bytes]) -> None:
    check(blocks)


@pytest.mark.parametrize("block", [block for block, _ in SEEN])
def test_a_block_of_any_form_alone_and_among_others(block: bytes) -> None:
    check([block])
    check([TIDY, block, TIDY])
    check([TIDY[:-1], block, TIDY[:-1]])
    check([b"", block, b"", block, block])


def test_a_part_of_an_array_of_blocks() -> None:
    blocks = [b"TAGS\x01cut off", TIDY, b"TAGS\x01b", b"", TIDY[:-1], b"\x01\x02a\x01v"]
    part = PropertyColumns.of(pa.array(blocks, pa.binary()).slice(1, 3))
    assert [dict(pairs) for pairs in part.column().to_pylist()] == [{"TAGS": "a", "KEYS": "k"}, {"TAGS": "b"}, {}]
    assert part.values_of("TAGS").to_pylist() == ["a", "b", None]


@pytest.mark.parametrize("names", [1, 63, 64, 65, 300])
def test_names_repeated_among_few_and_many(names: int) -> None:
    every = [f"name-{number}" for number in range(names)]
    once = "".join(f"{name}\x01once\x02" for name in every).encode()
    twice = once + f"{every[0]}\x01twice\x02{every[-1]}\x01last".encode()
    check([once, once])
    check([once, twice, b"", once])
