from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.offsets import Offset
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


def test_both_endings() -> None:
    pairs = {"a": "b", "c": "d\x01"}
    assert properties.encode(pairs) == b"a\x01b\x02c\x01d\x01\x02"
    assert properties.encode(pairs, trailing_separator=False) == b"a\x01b\x02c\x01d\x01"
    assert properties.encode({}) == properties.encode({}, trailing_separator=False) == b""


NAMES = st.text(min_size=1).filter(lambda name: "\x01" not in name and "\x02" not in name)
VALUES = st.text(min_size=1).filter(lambda value: "\x02" not in value)


@given(st.dictionaries(NAMES, VALUES), st.booleans())
def test_every_map_comes_back(pairs: dict[str, str], trailing_separator: bool) -> None:
    assert properties.decode(properties.encode(pairs, trailing_separator=trailing_separator)) == pairs


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


@pytest.mark.parametrize(
    ("delay", "waits_ms"),
    [
        ("1", 1_000), ("2", 5_000), ("3", 10_000), ("4", 30_000), ("5", 60_000), ("6", 120_000), ("7", 180_000),
        ("8", 240_000), ("9", 300_000), ("10", 360_000), ("11", 420_000), ("12", 480_000), ("13", 540_000),
        ("14", 600_000), ("15", 1_200_000), ("16", 1_800_000), ("17", 3_600_000), ("18", 7_200_000),
        ("19", 7_200_000), ("2147483647", 7_200_000), ("+2", 5_000), ("02", 5_000),
        ("0", None), ("-1", None), ("-2147483648", None),
        ("", 1_000), ("x", 1_000), ("1.5", 1_000), (" 1", 1_000), ("2147483648", 1_000), ("-2147483649", 1_000),
        ("+", 1_000), ("1_0", 1_000), ("9" * 5000, 1_000), ("-" + "9" * 5000, 1_000), ("0" * 5000 + "3", 10_000),
        ("\u0663", 10_000), ("\U0001d7db", 1_000), ("\u00b3", 1_000), ("3" + "x" * 5000, 1_000),
    ],
)  # fmt: skip
def test_how_long_a_delayed_message_waits(delay: str, waits_ms: int | None) -> None:
    assert properties.delay_ms(delay) == waits_ms
