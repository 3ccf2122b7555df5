"""A broker's own words as values. Those of real brokers: tests/peers/test_broker_words.py."""

import pytest

from sources.bounds import MasterRetention
from sources.errors import ConfigurationError, ProtocolViolation
from sources.rocketmq import broker_words
from sources.rocketmq.broker_words import (
    check_broker,
    counted_for_s,
    ha_address,
    lets_wait,
    log_bounds,
    may_let_wait,
    retention,
    takes_turns,
)
from tests.spans import span

GIB = 1024**3
INFO = {
    "commitLogMinOffset": "1073741824",
    "commitLogMaxOffset": "5000000000",
    "commitLogDiskRatio": "0.45",
    "commitLogDirCapacity": "Total : 100.0 GiB, Free : 55.3 GiB.",
}
CONFIG = {
    "brokerIP2": "10.0.0.5",
    "haListenPort": "10912",
    "mappedFileSizeCommitLog": "1073741824",
    "fileReservedTime": "72",
    "storePathRootDir": "/data/store",
    "storePathCommitLog": "/data/store/commitlog",
}


def test_a_log_has_two_ends() -> None:
    assert log_bounds(INFO) == span(1073741824, 5000000000)
    assert log_bounds({"commitLogMinOffset": "-1", "commitLogMaxOffset": "0"}) == span(0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"commitLogMinOffset": "5000000001"},
        *({"commitLogMaxOffset": text} for text in ("many", "", "9" * 19, "9" * 5000, "5_000_000_000", "\u0665" * 10)),
    ],
)
def test_ends_that_cannot_be_are_a_violation(change: dict[str, str]) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        log_bounds(INFO | change)
    assert "commitLogMaxOffset" in str(caught.value.expected)


@pytest.mark.parametrize(
    "change", [{"brokerIP2": ""}, *({"haListenPort": port} for port in ("", "0", "-1", "65536", "9" * 18))]
)
def test_a_broker_that_does_not_say_where_is_a_violation(change: dict[str, str]) -> None:
    for config in (CONFIG | change, {name: value for name, value in CONFIG.items() if name not in change}):
        with pytest.raises(ProtocolViolation, match="lacks its HA address"):
            ha_address(config)


@pytest.mark.parametrize(
    ("replicas", "waits", "turns"),
    [(None, True, False), ("", False, False), ("-1", False, False), ("1", False, False), ("2", True, False),
     ("3", True, True), ("5", True, True)],
)  # fmt: skip
def test_whom_producers_wait_for_and_in_turns_where_several_must_answer(
    replicas: str | None, waits: bool, turns: bool
) -> None:
    """4.x knows no number. The role may be changed while a broker runs."""
    config = {} if replicas is None else {"inSyncReplicas": replicas}
    for role, is_sync, has_turns in (
        ("SYNC_MASTER", True, True),
        ("ASYNC_MASTER", False, True),
        ("SLAVE", False, False),
    ):
        said = config | {"brokerRole": role}
        assert (lets_wait(said), takes_turns(said)) == (waits and is_sync, turns and has_turns)
    assert takes_turns(config) == turns


def test_how_long_a_silent_connection_counts() -> None:
    # the interval, and two seconds for a broker that looks at its clocks every second
    counting = {"inSyncReplicas": "3"}
    assert counted_for_s({**counting, "haHousekeepingInterval": "1500"}) == 3.5
    assert counted_for_s(counting) == 22.0  # RocketMQ's default is 20 s
    assert counted_for_s({"inSyncReplicas": "2", "haHousekeepingInterval": "1500"}) is None
    # an int of Java's, which every clock here can count to
    assert counted_for_s({**counting, "haHousekeepingInterval": "9" * 18}) == (2**31 - 1) / 1000 + 2


@pytest.mark.parametrize(
    ("percent", "room_gib"),
    [("85", 40), ("70", 25), ("95", 40), ("20", 0), ("46", 1)],  # the broker keeps it within 30 and 85
)
def test_what_it_keeps_and_how_much_room_it_has(percent: str, room_gib: int) -> None:
    """Files go whatever their age on a disk that is so full. 4.x has no setting, and means 85 %."""
    set_so = [CONFIG | {"diskSpaceCleanForciblyRatio": percent}, *([CONFIG] if percent == "85" else [])]
    for found in (retention(INFO, config) for config in set_so):
        assert found is not None
        assert (found.file_size_bytes, found.keeps_s) == (GIB, 72 * 3600.0)
        assert found.room_bytes == pytest.approx(room_gib * GIB, abs=10)


@pytest.mark.parametrize(
    ("text", "total_bytes"),
    [
        ("Total : 100.0 GiB, Free : 55.3 GiB.", 100 * GIB),
        ("Total : 1.5 TiB, Free : 0.5 TiB.", 1536 * GIB),
        ("Total : 1,5 TiB, Free : 0,5 TiB.", 1536 * GIB),  # Java writes it as its locale does
        ("Total : 512.0 MiB, Free : 1 B.", GIB // 2),
        ("Total : 1000 B, Free : 10 B.", 1000),
    ],
)
def test_the_size_of_its_disk_is_written_for_people(text: str, total_bytes: int) -> None:
    found = retention(INFO | {"commitLogDirCapacity": text, "commitLogDiskRatio": "0.0"}, CONFIG)
    assert found is not None
    assert found.room_bytes == int(0.85 * total_bytes)


@pytest.mark.parametrize(
    ("info", "config"),
    [
        ({"commitLogDirCapacity": "plenty"}, {}),
        ({"commitLogDiskRatio": "-1.0"}, {}),  # no such path
        ({"commitLogDiskRatio": "NaN"}, {}),
        ({}, {"cleanFileForciblyEnable": "false"}),
        ({}, {"storePathCommitLog": "/fast/commitlog"}),  # another disk than the one whose size is told
    ],
)
def test_room_that_nobody_knows(info: dict[str, str], config: dict[str, str]) -> None:
    found = retention(INFO | info, CONFIG | config)
    assert found == MasterRetention(file_size_bytes=GIB, keeps_s=72 * 3600.0, room_bytes=None)


@pytest.mark.parametrize("text", ["\u00b2", "--5", "9" * 5000, "x", ""])
def test_what_is_no_number_is_as_good_as_nothing(text: str) -> None:
    assert retention(INFO, {}) is None
    assert broker_words.files({"mappedFileSizeCommitLog": text}) is None
    info = {"commitLogDirCapacity": f"Total : {'9' * 5000} GiB, Free", "commitLogDiskRatio": "0.5"}
    found = broker_words.retention(info, {"mappedFileSizeCommitLog": "1024", "fileReservedTime": text})
    assert found is not None
    assert (found.keeps_s, found.room_bytes) == (None, None)


def test_an_elected_master_waits_for_no_learner() -> None:
    config = {"enableControllerMode": "true", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "3"}
    assert not (may_let_wait(config) or lets_wait(config) or takes_turns(config))
    assert counted_for_s(config) is None


@pytest.mark.parametrize(
    "config",
    [
        {},  # 4.9.7 knows none of the keys of 5.x
        {"enableControllerMode": "false", "enableDLegerCommitLog": "false", "inSyncReplicas": "1"},
        {"enableControllerMode": "true", "inSyncReplicas": "3"},  # which waits for no learner
        {"inSyncReplicas": "2"},  # producers wait for one replica: us
    ],
)
def test_a_broker_may_be_replicated(config: dict[str, str]) -> None:
    check_broker(config, parallel_reads=True)
    check_broker(config | {"inSyncReplicas": "5"}, parallel_reads=False)  # in turns


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"enableDLegerCommitLog": "true"}, ["DLedger"]),
        ({"inSyncReplicas": "3"}, ["inSyncReplicas=3", "parallel_reads", "slave"]),
    ],
)
def test_what_cannot_be_replicated_honestly_is_refused(config: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_broker(config, parallel_reads=True)
    for word in words:
        assert word in str(caught.value)
