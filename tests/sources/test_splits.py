"""No core waits for another one that has two splits to read; a small batch is one file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.reading import WORTH_A_TASK_BYTES, split_bytes

MIB = 1024 * 1024
MOST_BYTES = 64 * MIB


def splits_of(total_bytes: int, *, cores: int, most_bytes: int = MOST_BYTES) -> int:
    size = split_bytes(total_bytes, most_bytes=most_bytes, cores=cores)
    return -(-total_bytes // size)


@pytest.mark.parametrize(
    ("total_mib", "cores", "splits"),
    [
        (1, 2, 1),
        (31, 2, 1),  # not worth a task for each core
        (32, 2, 2),
        (40, 8, 2),  # as many as are worth one
        (65, 2, 2),
        (144, 2, 2),  # an eighth longer
        (145, 2, 4),  # three would leave one core with two
        (256, 2, 4),
        (257, 2, 4),  # a batch ends with the record that its limit falls into
        (256, 3, 6),
        (256, 16, 16),
        (1024, 2, 16),
        (10, 1, 1),
        (100, 1, 2),
    ],
)
def test_as_many_splits_as_keep_all_cores_busy(total_mib: int, cores: int, splits: int) -> None:
    assert splits_of(total_mib * MIB, cores=cores) == splits


@given(total_bytes=st.integers(1, 2**40), most_bytes=st.integers(MIB, 256 * MIB), cores=st.integers(1, 512))
def test_splits_are_as_large_as_each_other_and_within_the_limit(total_bytes: int, most_bytes: int, cores: int) -> None:
    size = split_bytes(total_bytes, most_bytes=most_bytes, cores=cores)
    at_most = most_bytes + most_bytes // 8
    assert 0 < size <= at_most
    splits, fewest, worth = -(-total_bytes // size), -(-total_bytes // at_most), total_bytes // WORTH_A_TASK_BYTES
    most = fewest + cores - 1 if worth >= cores else max(fewest, worth)  # a multiple of cores is never further away
    assert splits <= most
    assert splits * size - total_bytes < most  # what the last one lacks: less than a byte for each


@given(
    total_bytes=st.integers(1, 2**40),
    most_bytes=st.integers(2 * WORTH_A_TASK_BYTES, 256 * MIB),
    cores=st.integers(1, 512),
)
def test_every_split_is_worth_a_task_where_the_limit_leaves_room(total_bytes: int, most_bytes: int, cores: int) -> None:
    splits = splits_of(total_bytes, cores=cores, most_bytes=most_bytes)
    assert splits <= max(total_bytes // WORTH_A_TASK_BYTES, 1)


@given(
    bytes_each=st.integers(WORTH_A_TASK_BYTES, 2**30),
    left_over=st.integers(0, 511),
    most_bytes=st.integers(MIB, 256 * MIB),
    cores=st.integers(1, 512),
)
def test_with_enough_for_every_core_each_has_as_many_splits(
    bytes_each: int, left_over: int, most_bytes: int, cores: int
) -> None:
    total_bytes = bytes_each * cores + left_over
    assert splits_of(total_bytes, cores=cores, most_bytes=most_bytes) % cores == 0
