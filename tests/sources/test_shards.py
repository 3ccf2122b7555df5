"""Which share an id falls into: the same everywhere, shares of a size, few that move."""

from collections import Counter

import pytest

from sources.offsets import LogId
from sources.shards import Shard, jumped, share_of

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
