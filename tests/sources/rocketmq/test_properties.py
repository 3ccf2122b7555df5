"""Blocks of properties: what a consumer sees in each; and many at once, which give the same."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sources.offsets import Offset
from sources.rocketmq.columns.scan import PropertyColumns
from sources.rocketmq.format import commitlog, properties
from tests import truth

SEEN: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"a\x01b\x02c\x01d\x02", {"a": "b", "c": "d"}),
    (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
    (b"a\x01b\x02a\x01c\x02", {"a": "c"}),  # the last one wins
    (b"a\x01b\x02a\x01\x02", {"a": "b"}),  # an empty value is no pair, so it does not win
    (b"\x01b\x02a\x01\x02a\x02\x02\x01\x02", {}),
    (b"a\x01b\x01c\x02", {"a": "b\x01c"}),  # split at the first 0x01 only
    (b"a\x01\x01\x02", {"a": "\x01"}),
    (b"\x01a\x01b\x02", {}),
    (b"a\x01b\x02\x02\x02c\x01d", {"a": "b", "c": "d"}),
    ("ключ\x01北京😀\x02".encode(), {"ключ": "北京😀"}),
    (b"a\x01\xff\x02b\x01x\xe4\xb8\x02\xe4\x01y\x02", {"a": "\ufffd", "b": "x\ufffd", "\ufffd": "y"}),
    (b"\xff\x011\x02\xfe\x012\x02", {"\ufffd": "2"}),  # different bytes, the same name in Java
    (b"a\x01\xf0\x9f\x98\x02", {"a": "\ufffd"}),  # a cut-off character is one U+FFFD, not three
    (b"a\x01\xc0\x80\x02", {"a": "\ufffd\ufffd"}),
    (b"a\x01\xed\xa0\x80\x02", {"a": "\ufffd\ufffd\ufffd"}),
]


@pytest.mark.parametrize(("block", "found"), SEEN)
def test_what_a_consumer_sees(block: bytes, found: dict[str, str]) -> None:
    assert properties.decode(block) == found


def test_what_java_saw_in_a_brokers_records(fixture_log: truth.Fixture) -> None:
    for row in fixture_log.rows:
        record = commitlog.decode(fixture_log.log, row["physical_offset"], Offset(row["physical_offset"]))
        if isinstance(record, commitlog.Message):
            assert properties.decode(record.properties) == row["properties"]


NAMES = st.text(min_size=1).filter(lambda name: "\x01" not in name and "\x02" not in name)
VALUES = st.text(min_size=1).filter(lambda value: "\x02" not in value)


@given(st.dictionaries(NAMES, VALUES))
@example({"a": "b", "c": "d\x01"})
def test_every_map_comes_back_with_and_without_the_last_separator(pairs: dict[str, str]) -> None:
    block = properties.encode(pairs)
    assert block.endswith(b"\x02") or not pairs
    assert properties.decode(block) == properties.decode(block.removesuffix(b"\x02")) == pairs


@pytest.mark.parametrize("pairs", [{"": "b"}, {"a": ""}, {"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02c"}])
def test_pairs_that_would_not_come_back(pairs: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        properties.encode(pairs)


# String.hashCode, from Java's documentation of it (s[0]*31^(n-1) + … + s[n-1]) and from brokers' consume queues.
@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("x", 120),
        ("tagA", 3552231),
        ("polygenelubricants", -2147483648),
        ("😀", 0xD83D * 31 + 0xDE00),
        ("北京", 0x5317 * 31 + 0x4EAC),
    ],
)
def test_javas_hash(text: str, hashed: int) -> None:
    assert properties.java_hash(text) == hashed
    assert properties.tags_code(text) == hashed


LEVELS_S = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)


@pytest.mark.parametrize(
    ("delay", "waits_ms"),
    [
        *((str(level), 1000 * seconds) for level, seconds in enumerate(LEVELS_S, 1)),
        ("19", 7_200_000), ("2147483647", 7_200_000), ("+2", 5_000), ("02", 5_000),
        ("0", None), ("-1", None), ("-2147483648", None),
        ("", 1_000), ("x", 1_000), ("1.5", 1_000), (" 1", 1_000), ("2147483648", 1_000), ("-2147483649", 1_000),
        ("+", 1_000), ("1_0", 1_000), ("9" * 5000, 1_000), ("-" + "9" * 5000, 1_000), ("0" * 5000 + "3", 10_000),
        ("\u0663", 10_000), ("\U0001d7db", 1_000), ("\u00b3", 1_000), ("3" + "x" * 5000, 1_000),
    ],
)  # fmt: skip
def test_how_long_a_delayed_message_waits(delay: str, waits_ms: int | None) -> None:
    assert properties.delay_ms(delay) == waits_ms


# many at once

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
