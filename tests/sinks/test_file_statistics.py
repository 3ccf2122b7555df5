"""Bounds that never lose a row: each must be at or outside the values, in the readers' order."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.data_file import Statistics, holds_only, lower_bound, may_hold, upper_bound

TIMESTAMP = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def stats(*batches: pa.RecordBatch) -> dict[str, object]:
    statistics = Statistics(batches[0].schema.names)
    for one in batches:
        statistics.add(one)
    found: dict[str, object] = json.loads(statistics.as_json())
    return found


def test_statistics_of_several_batches() -> None:
    found = stats(
        batch(offset=pa.array([3, 9]), topic=pa.array(["b", None]), tags=pa.nulls(2, pa.string())),
        batch(offset=pa.array([1, 2]), topic=pa.nulls(2, pa.string()), tags=pa.nulls(2, pa.string())),
        batch(offset=pa.array([5]), topic=pa.array(["ä"]), tags=pa.nulls(1, pa.string())),
    )
    assert found == {
        "numRecords": 5,
        "minValues": {"offset": 1, "topic": "b"},
        "maxValues": {"offset": 9, "topic": "ä"},
        "nullCount": {"offset": 0, "topic": 3, "tags": 5},
    }


def test_timestamps_are_written_in_milliseconds_and_rounded_outwards() -> None:
    # 2024-01-01T00:00:00Z is 1704067200 s after the epoch
    at = pa.array([1_704_067_200_000_001, 1_704_067_200_000_999], TIMESTAMP)
    found = stats(batch(store_timestamp=at))
    assert found["minValues"] == {"store_timestamp": "2024-01-01T00:00:00.000Z"}
    assert found["maxValues"] == {"store_timestamp": "2024-01-01T00:00:00.001Z"}


def test_a_time_that_iso_8601_cannot_carry_has_no_bound() -> None:
    assert upper_bound(2**62, TIMESTAMP) is None
    assert lower_bound(-(2**62), TIMESTAMP) is None


def test_long_text_is_cut() -> None:
    assert lower_bound("a" * 100, pa.string()) == "a" * 32
    assert upper_bound("a" * 100, pa.string()) == "a" * 32 + "\U0010ffff"
    assert lower_bound("a" * 32, pa.string()) == upper_bound("a" * 32, pa.string()) == "a" * 32
    greatest = "a" * 32 + "\U0010ffff\U0010ffff"
    assert upper_bound(greatest, pa.string()) == greatest  # no cut exceeds it


@given(st.lists(st.text(alphabet="aé\U0001f600\U0010ffff", max_size=40), min_size=1))
def test_text_lies_within_its_bounds_as_bytes(values: list[str]) -> None:
    found = stats(batch(topic=pa.array(values, pa.string())))
    least, greatest = found["minValues"]["topic"], found["maxValues"]["topic"]  # type: ignore[index]
    assert all(least.encode() <= value.encode() <= greatest.encode() for value in values)


@given(st.lists(st.integers(min_value=-(10**15), max_value=10**16), min_size=1))
def test_times_lie_within_their_bounds(values: list[int]) -> None:
    found = stats(batch(at=pa.array(values, TIMESTAMP)))
    least, greatest = (datetime.fromisoformat(found[side]["at"]) for side in ("minValues", "maxValues"))  # type: ignore[index]
    assert all(least <= EPOCH + timedelta(microseconds=value) <= greatest for value in values)
    assert EPOCH + timedelta(microseconds=max(values)) > greatest - timedelta(milliseconds=1)


IDS = ["rocketmq/" + "a" * (size - 9) for size in (31, 32, 33, 60)] + ["rocketmq/" + "a" * 31 + end for end in "bcz|"]


@pytest.mark.parametrize("one", IDS)
def test_whose_rows_a_file_has_is_known_of_ids_of_any_length(one: str) -> None:
    for other in IDS:
        found = stats(batch(log_id=pa.array([one, other])))
        assert holds_only(found, "log_id", one) == (one == other)
        assert may_hold(found, "log_id", one)
        assert may_hold(found, "log_id", other)


@pytest.mark.parametrize("one", IDS)
@pytest.mark.parametrize("tie_breaker", ["\U0010ffff", "\uffff"])
def test_bounds_that_were_cut_prove_too_little_and_never_too_much(one: str, tie_breaker: str) -> None:
    """As older versions and Delta's OPTIMIZE wrote them."""
    for other in IDS:
        least, greatest = min(one, other)[:32], max(one, other)
        bounds = least, greatest if len(greatest) <= 32 else greatest[:32] + tie_breaker
        found = {"minValues": {"log_id": bounds[0]}, "maxValues": {"log_id": bounds[1]}}
        assert may_hold(found, "log_id", one)
        assert may_hold(found, "log_id", other)
        assert holds_only(found, "log_id", one) == (one == other and len(one) <= 32)
        assert not may_hold(found, "log_id", "rocketmq/b")


def test_without_bounds_nothing_is_known() -> None:
    assert may_hold({}, "log_id", "x")
    assert not holds_only({}, "log_id", "x")
    nulls = {"minValues": {"log_id": "x"}, "maxValues": {"log_id": "x"}, "nullCount": {"log_id": 1}}
    assert not holds_only(nulls, "log_id", "x")
