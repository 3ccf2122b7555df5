import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.bounds import check_within
from sources.errors import AboveMaximum, BelowMinimum, OffsetOutOfRange
from sources.offsets import LogId, Offset, OffsetRange, Position, packed, partition_log, topic_and_number
from tests.spans import span

offsets = st.integers(0, 2**63 - 1)


def test_a_range_is_half_open() -> None:
    assert 10 in span(10, 12)
    assert 11 in span(10, 12)
    assert 12 not in span(10, 12)
    assert "10" not in span(10, 12)
    assert span(10, 12).size == 2
    assert span(7, 7).is_empty
    assert str(span(10, 12)) == "[10, 12)"


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2)])
def test_what_is_no_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=r"not a range of offsets"):
        span(start, end)


@pytest.mark.parametrize(
    ("start", "expected"), [(5, (10, 20)), (10, (10, 20)), (15, (15, 20)), (20, (20, 20)), (25, (20, 20))]
)
def test_starting_at_keeps_the_part_at_or_after(start: int, expected: tuple[int, int]) -> None:
    assert span(10, 20).starting_at(Offset(start)) == span(*expected)


@pytest.mark.parametrize(
    ("start", "end", "overlaps"),
    [(5, 9, False), (5, 10, False), (5, 11, True), (12, 15, True), (5, 25, True), (19, 25, True), (20, 25, False)],
)
def test_ranges_that_join_have_no_offset_in_common(start: int, end: int, overlaps: bool) -> None:
    assert span(10, 20).overlaps(span(start, end)) is overlaps
    assert span(start, end).overlaps(span(10, 20)) is overlaps


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 50))
def test_pieces_join_to_the_range(start: int, length: int, size: int) -> None:
    whole = span(start, start + length)
    pieces = whole.in_pieces(size)
    assert [offset for piece in pieces for offset in range(piece.start, piece.end)] == list(
        range(start, start + length)
    )
    assert all(0 < piece.size <= size for piece in pieces)
    with pytest.raises(ValueError, match="a piece of 0 offsets"):
        whole.in_pieces(0)


@pytest.mark.parametrize("text", ["rocketmq/broker-a", "kafka/main/orders/0", "dister/group-1", "rocketmq/b_1.x"])
def test_log_ids_read_and_write_the_same(text: str) -> None:
    assert str(LogId.parse(text)) == text


def test_an_offset_of_rocketmq_alone_counts_bytes() -> None:
    units = {"rocketmq/broker-a": "bytes", "kafka/main/orders/0": "offsets", "dister/group-1": "ids"}
    for text, unit in units.items():
        log_id = LogId.parse(text)
        assert (log_id.unit, log_id.counts_bytes) == (unit, unit == "bytes")


def test_a_partition_is_a_log_and_its_topic_the_master() -> None:
    broker, topic, partition = map(LogId.parse, ("rocketmq/b", "kafka/main/orders", "kafka/main/orders/3"))
    assert (partition_log(topic, 3), topic_and_number(partition)) == (partition, (topic, 3))
    assert [(one.master, one.has_partitions) for one in (broker, topic, partition)] == [
        (broker, False), (topic, True), (topic, False),
    ]  # fmt: skip


NO_IDS = ("", "broker-a", "rocketmq/", "rocketmq//a", "pulsar/a", "rocketmq/a b", "rocketmq/a/")
OUT_OF_THE_FOLDER = ("rocketmq/../x/", "rocketmq/..", "rocketmq/a/../b", "rocketmq/.")


@pytest.mark.parametrize("text", NO_IDS + OUT_OF_THE_FOLDER)
def test_what_is_no_log_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no log id"):
        LogId.parse(text)


def test_the_application_id_of_a_position_names_log_and_epoch() -> None:
    position = Position(LogId.parse("rocketmq/broker-a"), 2, Offset(77))
    assert position.app_id == "logtwin/rocketmq/broker-a@2"


@pytest.mark.parametrize("wanted", [span(4096, 8192), span(4096, 4096), span(8192, 8192), span(5000, 5001)])
def test_what_lies_inside_is_held(wanted: OffsetRange) -> None:
    check_within(wanted, span(4096, 8192))


@pytest.mark.parametrize(
    ("wanted", "kind", "offset", "expected"),
    [
        (span(4095, 5000), BelowMinimum, 4095, "4096 or more: the master holds [4096, 8192)"),
        (span(0, 9000), BelowMinimum, 0, "4096 or more: the master holds [4096, 8192)"),
        (span(5000, 8193), AboveMaximum, 8193, "8192 or less: the master holds [4096, 8192)"),
        (span(9000, 9500), AboveMaximum, 9000, "8192 or less: the master holds [4096, 8192)"),
    ],
)
def test_what_does_not_is_named(wanted: OffsetRange, kind: type[OffsetOutOfRange], offset: int, expected: str) -> None:
    with pytest.raises(kind) as caught:
        check_within(wanted, span(4096, 8192), log="rocketmq/broker-a")
    error = caught.value
    assert (error.log, error.offset, error.found) == ("rocketmq/broker-a", offset, str(offset))
    assert error.expected == expected
    assert error.hint


def test_the_hint_for_what_was_deleted_is_that_of_its_kind() -> None:
    with pytest.raises(BelowMinimum, match=r"found 5\. Retention, or somebody who deleted records"):
        check_within(span(5, 6), span(6, 7), kind="kafka")


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
