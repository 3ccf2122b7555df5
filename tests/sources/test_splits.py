"""No core waits for another one that has two splits to read; a small batch is one file."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.offsets import LogId
from sources.reading import WORTH_A_TASK_BYTES, split_bytes
from sources.shards import Shard, jumped, share_of

MIB = 1024 * 1024
MOST_BYTES = 64 * MIB


def splits_of(total_bytes: int, *, cores: int, most_bytes: int = MOST_BYTES) -> int:
    size = split_bytes(total_bytes, most_bytes=most_bytes, cores=cores)
    return -(-total_bytes // size)


@pytest.mark.parametrize(
    ("total_mib", "cores", "splits"),
    [
        (31, 2, 1),  # not worth a task for each core
        (40, 8, 2),  # as many as are worth one
        (144, 2, 2),  # an eighth longer
        (145, 2, 4),  # three would leave one core with two
        (257, 2, 4),  # a batch ends with the record that its limit falls into
        (256, 3, 6),
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


# which share an id falls into: the same everywhere, shares of a size, few that move


PARTITIONS = [f"kafka/main/topic-{topic}/{number}" for topic in range(20) for number in range(100)]
BROKERS = [f"rocketmq/broker-{number}" for number in range(500)]


@pytest.mark.parametrize(
    ("key", "buckets", "bucket"),
    [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520), (2**64 - 1, 1, 0)],
)
def test_it_jumps_as_published(key: int, buckets: int, bucket: int) -> None:
    """The values that other implementations test by."""
    assert jumped(key, buckets) == bucket


def test_a_share_is_the_same_on_all_machines_and_for_ever() -> None:
    """If one of these changed, jobs of two versions would take each other's logs."""
    ids = ["rocketmq/broker-a", "kafka/main/orders/0", "kafka/main/orders/1", "dister/shop", "table/orders"]
    assert [share_of(one, 8) for one in ids] == [3, 3, 4, 7, 8]
    assert {share_of(one, 8) for one in PARTITIONS[:100]} == set(range(1, 9))  # those of one topic spread


@pytest.mark.parametrize("ids", [PARTITIONS, BROKERS], ids=["partitions", "brokers"])
@pytest.mark.parametrize("shares", [2, 3, 8, 9])
def test_every_id_is_in_one_share_and_shares_are_of_a_size(ids: list[str], shares: int) -> None:
    shards = [Shard(number, shares) for number in range(1, shares + 1)]
    taken = Counter(str(shard) for one in ids for shard in shards if shard.has(one))
    assert sum(taken.values()) == len(ids)
    fair = len(ids) / shares
    assert max(abs(size - fair) for size in taken.values()) < 4 * fair**0.5  # as if by throwing dice


@pytest.mark.parametrize(("before", "after"), [(2, 3), (8, 9), (9, 8)])
def test_only_the_share_that_comes_or_goes_is_moved(before: int, after: int) -> None:
    moved = [one for one in PARTITIONS if share_of(one, before) != share_of(one, after)]
    edge = max(before, after)
    assert all(edge in (share_of(one, before), share_of(one, after)) for one in moved)
    assert 0.8 < len(moved) / (len(PARTITIONS) / edge) < 1.2


def test_a_shard_is_written_as_it_is_read() -> None:
    assert str(Shard.parse(" 2/8 ")) == "2/8"
    assert Shard.parse("1/1").has(LogId("rocketmq", "a"))
    for wrong in ("", "2", "0/8", "9/8", "2/0", "-1/8", "2/8/1", "2,5/8", "²/8"):
        with pytest.raises(ValueError, match="as 1/8 to 8/8"):
            Shard.parse(wrong)
    with pytest.raises(ValueError, match="no share"):
        Shard(3, 2)
