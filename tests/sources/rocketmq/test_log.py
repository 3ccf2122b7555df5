"""A RocketMQ log as a master log, over HA and by path."""

import itertools
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from sources.access.address import Address
from sources.bounds import MasterRetention
from sources.epochs import Epoch
from sources.errors import AboveMaximum, ConfigurationError, CorruptRecord, LogtwinError
from sources.master import MasterView
from sources.offsets import Offset
from sources.options import MasterOptions, parse_options
from sources.registry import open_log
from sources.rocketmq.files.segment_files import encode_epoch_file
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.remoting import Command, encode_command
from tests.log_lines import said_by
from tests.sources.rocketmq.damaged_logs import damage, offsets
from tests.sources.rocketmq.embedded.embedded import running_master, settings_for
from tests.sources.rocketmq.log_reading import (
    ALL,
    LOG_ID,
    assert_is,
    damaged,
    over_ha,
    owned,
    pieces,
    read,
    serving,
    truth_between,
)
from tests.sources.rocketmq.scripted_master import HAScript, answer_as, holding, serve_log
from tests.truth import Fixture

NOWHERE = Address("127.0.0.1", 1)


@pytest.mark.parametrize("chunk_bytes", [10_000, 8 * 1024 * 1024])
def test_a_whole_log_comes_over_ha(fixture_log: Fixture, chunk_bytes: int) -> None:
    with serving(fixture_log.log, chunk_bytes=chunk_bytes) as (log, master):
        chunks = read(log, 0, fixture_log.max_offset, committed=None)
        assert set(master.reports) == {1}
    assert_is(chunks, fixture_log, 0, fixture_log.max_offset)
    largest = max(row["size"] for row in fixture_log.rows)
    assert max(len(chunk.raw) for chunk in chunks) <= max(chunk_bytes, largest) + 32 * 1024


def test_over_ha_a_range_is_one_piece_unless_nobody_waits() -> None:
    alone = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE, split_bytes=10)
    parallel = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE, split_bytes=10, parallel_reads=True)
    pieces = (owned(0, 9), owned(9, 18), owned(18, 25))  # as large as each other
    assert alone.plan(owned(0, 25)) == (owned(0, 25),)
    assert parallel.plan(owned(0, 25)) == pieces
    assert [log.traits.cuts_at_records for log in (alone, parallel)] == [False, False]
    assert [log.traits.cuts_batches for log in (alone, parallel)] == [False, True]
    assert parallel.boundary_after(Offset(7), Offset(25)) == 7
    assert alone.plan(owned(7, 7)) == parallel.plan(owned(7, 7)) == ()


@pytest.mark.parametrize(("start", "committed"), [(1000, 999), (1000, None), (1, 0)])
def test_no_connection_starts_above_the_committed_position(start: int, committed: int | None) -> None:
    with over_ha((serve_log(b""),), holding(0, 5000)) as (log, master):
        with pytest.raises(ConfigurationError, match="acknowledge what is not committed") as caught:
            read(log, start, 2000, committed=committed)
        assert master.connections == []
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", start)
    assert "parallel_reads" in str(caught.value.hint)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_a_master_that_lets_nobody_wait_takes_no_start_for_a_promise(fixture_550: Fixture, role: str) -> None:
    start = fixture_550.rows[50]["physical_offset"]
    with over_ha((serve_log(fixture_550.log),), telling(0, fixture_550.max_offset, role=role)) as (log, _):
        assert_is(read(log, start, start + 50_000, committed=None), fixture_550, start, start + 50_000)
        log.check(is_replica=False)


def test_a_reader_that_keeps_nothing_may_not_follow_a_sync_master() -> None:
    for answer in (telling(0, 5000, role="SYNC_MASTER"), holding(0, 5000)):  # and one that does not say
        with over_ha((serve_log(b""),), answer) as (log, master):
            log.check()
            with pytest.raises(ConfigurationError, match=r"rocketmq/broker-a: .* is no replica") as caught:
                log.check(is_replica=False)
            assert master.connections == []
        assert "parallelReads" in str(caught.value.hint)
    with over_ha((serve_log(b""),), telling(0, 5000, role="SYNC_MASTER"), parallel_reads=True) as (log, _):
        log.check(is_replica=False)


def test_a_replica_may_begin_at_the_masters_minimum(fixture_550: Fixture) -> None:
    """HA-40: a replica that has nothing yet may begin in the middle of a log, at the master's minimum."""
    minimum = fixture_550.rows[50]["physical_offset"]
    log_bytes = fixture_550.log[minimum:]
    script = serve_log(log_bytes, first_offset=minimum)
    with over_ha((script,), holding(minimum, fixture_550.max_offset)) as (log, master):
        assert_is(read(log, minimum, minimum + 50_000, committed=None), fixture_550, minimum, minimum + 50_000)
        assert set(master.reports) == {minimum}


def test_the_masters_own_count_of_acknowledgements(fixture_550: Fixture) -> None:
    body = b'{"haConnectionInfo":[{"slaveAckOffset":5},{"slaveAckOffset":100}]}'
    with over_ha((serve_log(b""),), lambda request: encode_command(request.response(0, body=body))) as (log, _):
        assert log.acknowledged_by_master() == {LOG_ID: 100}
    with over_ha((serve_log(b""),), answer_as(fixture_550.wire("907.resp.bin"))) as (log, _):
        assert log.acknowledged_by_master() == {}
    with over_ha((serve_log(b""),), lambda request: encode_command(request.response(3))) as (log, _):
        assert log.acknowledged_by_master() == {}
    assert RocketMQLog(log_id=LOG_ID, path="commitlog").acknowledged_by_master() == {}


def telling(
    start: int, end: int, *, role: str = "SYNC_MASTER", in_sync_replicas: int = 2
) -> Callable[[Command], bytes]:
    files = {"mappedFileSizeCommitLog": 1024, "fileReservedTime": 48}
    return holding(start, end, brokerRole=role, inSyncReplicas=in_sync_replicas, **files)


def test_a_look_at_the_master() -> None:
    with over_ha((serve_log(b""),), telling(1024, 5000)) as (log, master):
        assert log.view() == MasterView(
            role="SYNC_MASTER",
            bounds=owned(1024, 5000),
            retention=MasterRetention(file_size_bytes=1024, keeps_s=48 * 3600.0, room_bytes=None),
        )
        assert log.address == str(master.address)
        assert log.role == "slave"


@pytest.mark.parametrize(
    ("in_sync_replicas", "parallel_reads", "waits"), [(2, False, True), (1, False, False), (2, True, False)]
)
def test_whether_producers_wait_for_this_replica(in_sync_replicas: int, parallel_reads: bool, waits: bool) -> None:
    answer = telling(0, 5000, in_sync_replicas=in_sync_replicas)
    with over_ha((serve_log(b""),), answer, parallel_reads=parallel_reads) as (log, _):
        assert log.is_waited_for() == waits
    assert not RocketMQLog(log_id=LOG_ID, path="commitlog").is_waited_for()


def test_parallel_readers_of_a_master_that_counts_connections_are_refused() -> None:
    """Whenever it starts to count: a batch asks anew."""
    with over_ha((serve_log(b""),), telling(0, 5000, in_sync_replicas=3), parallel_reads=True) as (log, master):
        for refused in (log.check, lambda: read(log, 0, 5000)):
            with pytest.raises(ConfigurationError, match=r"rocketmq/broker-a: .* several replicas"):
                refused()
        assert master.connections == []


ONE_WAY = {("path",), ("master", "remoting"), ("name_servers",)}
WAYS: dict[str, Any] = {"path": "commitlog", "master": NOWHERE, "remoting": NOWHERE, "name_servers": (NOWHERE,)}


@pytest.mark.parametrize(
    "given", [one for count in range(4) for one in combinations(WAYS, count) if one not in ONE_WAY]
)
def test_there_is_exactly_one_way_to_a_log(given: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="either path, or master and remoting, or name_server"):
        RocketMQLog(log_id=LOG_ID, **{name: WAYS[name] for name in given})


# by path


def test_files_are_cut_at_records(fixture_log: Fixture) -> None:
    log = RocketMQLog(log_id=LOG_ID, path=str(fixture_log.commitlog_path), split_bytes=200_000)
    starts = truth_between(fixture_log, 0, ALL)
    count = -(-fixture_log.max_offset // 225_000)  # a split may be an eighth longer
    size_bytes = -(-fixture_log.max_offset // count)  # as large as each other
    pieces = log.plan(owned(0, fixture_log.max_offset))
    assert log.traits.cuts_at_records
    assert log.traits.cuts_batches
    cut, expected = 0, []
    while cut < fixture_log.max_offset:
        end = min((start for start in starts if start >= cut + size_bytes), default=fixture_log.max_offset)
        expected.append(owned(cut, end))
        cut = end
    assert pieces == tuple(expected)


def test_files_that_a_fail_over_may_cut_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The epoch file as CheckpointFile of 5.5.0 writes it: a count, a CRC, a line of each epoch."""
    (tmp_path / "commitlog").mkdir()
    log = RocketMQLog(log_id=LOG_ID, path=str(tmp_path / "commitlog"))
    log.check()
    assert said_by(RocketMQLog.__module__, caplog) == []
    epochs = "1-0\n2-4096\n"
    crc = zlib.crc32(epochs.encode()) & 0x7FFFFFFF  # as UtilAll.crc32
    (tmp_path / "epochFileCheckpoint").write_text(f"2\n{crc}\n{epochs}")
    log.check()
    (record,) = (one for one in caplog.records if one.name == RocketMQLog.__module__)
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"{LOG_ID}: {tmp_path}/commitlog is the log of a broker in controller mode")
    assert "confirm offset" in record.message


def test_a_line_an_epoch_as_a_broker_has_written_it() -> None:
    """Section 3.5 of the RocketMQ notes."""
    assert encode_epoch_file((Epoch(1, Offset(0)),)) == b"1\n1725254278\n1-0\n"
    head, _, lines = encode_epoch_file((Epoch(1, Offset(0)), Epoch(12, Offset(4096)))).split(b"\n", 2)
    assert (head, lines) == (b"2", b"1-0\n12-4096\n")


# faults over HA: each is a named error with log, offset, expected, found and a hint


def failure(
    scripts: tuple[HAScript, ...], answer: Callable[[Command], bytes], start: int = 0, end: int = 1000, **options: Any
) -> LogtwinError:
    with over_ha(scripts, answer, **options) as (log, master):
        with pytest.raises(LogtwinError) as caught:
            read(log, start, end, committed=start)
        assert set(master.reports) <= {max(start, 1)}
    error = caught.value
    assert error.log == "rocketmq/broker-a"
    assert None not in (error.expected, error.found, error.hint)
    return error


@pytest.mark.parametrize(("start", "end", "offset"), [(9000, 9100, 9000), (5000, 9000, 9000)])
def test_above_the_maximum(start: int, end: int, offset: int) -> None:
    """HA-70."""
    error = failure((serve_log(b""),), holding(4096, 8192), start=start, end=end)
    assert isinstance(error, AboveMaximum)
    assert error.offset == offset
    assert error.expected == "8192 or less: the master holds [4096, 8192)"


@pytest.mark.parametrize("at", [4, 100], ids=["magic", "body or behind it"])
def test_a_record_that_was_damaged(fixture_550: Fixture, at: int) -> None:
    """HA-70: the same offsets with other bytes do not pass for the log."""
    row = next(row for row in fixture_550.rows[10:] if row["size"] > 500)
    place = row["physical_offset"]
    log_bytes = damaged(fixture_550.log, place + at)
    error = failure((serve_log(log_bytes),), holding(0, len(log_bytes)), end=place + 1)
    assert isinstance(error, CorruptRecord)
    assert error.offset == place


def test_a_start_that_is_no_record_boundary(fixture_550: Fixture) -> None:
    """HA-70."""
    start = fixture_550.rows[10]["physical_offset"] + 3
    error = failure((serve_log(fixture_550.log),), holding(0, fixture_550.max_offset), start=start, end=start + 5000)
    assert isinstance(error, CorruptRecord)
    assert error.offset == start
    assert error.problem == "no record starts at the offset to read from"


def test_a_search_ends_where_no_record_can_be() -> None:
    noise = b"\0" + random.Random(1).randbytes(20_000)
    with (
        serving(noise, parallel_reads=True, max_record_bytes=2000, chunk_bytes=500) as (log, _),
        pytest.raises(CorruptRecord, match="no record boundary") as caught,
    ):
        read(log, 100, 200, boundary=False)
    assert (caught.value.offset, caught.value.expected) == (
        100,
        "one within 4000 bytes, twice the size limit of a record",
    )


# past damage, and its bytes as they are


@contextmanager
def embedded(store: Path, fixture: Fixture, **options: object) -> Iterator[tuple[RocketMQLog, Path]]:
    """The log of an embedded master on a copy of the fixture's files; and where those are."""
    shutil.copytree(fixture.commitlog_path, store / "commitlog")
    with running_master(settings_for(store)) as master:
        given = {"remoting": master.address, "master": master.ha_address, "chunk_bytes": 300_000} | options
        yield RocketMQLog(log_id=LOG_ID, **given), store / "commitlog"  # type: ignore[arg-type]


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_the_operators_word_decides(tmp_path: Path, on_loss: str) -> None:
    options = {"id": "rocketmq/broker-a", "path": str(tmp_path), "on_loss": on_loss}
    log = open_log(parse_options(MasterOptions, options, where="test"))
    assert isinstance(log, RocketMQLog)
    assert log.past_damage == (on_loss == "record")


def test_a_last_record_that_does_not_come_is_waited_for(fixture_550: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave as a master: its log may end inside a record, for a moment."""
    monkeypatch.setattr("sources.rocketmq.over_ha.SETTLE_S", 0.001)
    last = fixture_550.rows[-1]
    place, end = last["physical_offset"], last["physical_offset"] + last["size"]
    ends = iter([end - 5])
    script = serve_log(fixture_550.log)
    with over_ha((script,), lambda request: holding(0, next(ends, end))(request), past_damage=True) as (log, _):
        assert offsets(pieces(log, place, end - 5)) == [place]
    with over_ha((serve_log(fixture_550.log[: end - 5]),), holding(0, end - 5), past_damage=True) as (log, _):
        assert damage(pieces(log, place, end - 5)) == [(place, end - 5)]


MIB = 1024 * 1024  # of a file of the fixtures' logs
EDGES = (0, 1, 12_345, MIB - 3, MIB + 3, 2_222_222)


def test_raw_bytes_of_files_and_of_a_master_are_the_same(fixture_550: Fixture, tmp_path: Path) -> None:
    by_path = RocketMQLog(log_id=LOG_ID, path=str(fixture_550.commitlog_path), chunk_bytes=100_000)
    edges = [*EDGES, fixture_550.max_offset]
    with embedded(tmp_path, fixture_550, parallel_reads=True) as (by_ha, _):
        for log in (by_path, by_ha):
            for start, end in itertools.combinations_with_replacement(edges, 2):
                found = log.raw(owned(start, end), committed=None)
                assert b"".join(map(bytes, found)) == fixture_550.log[start:end]


def test_raw_bytes_promise_no_more_than_is_committed(fixture_550: Fixture) -> None:
    with over_ha((serve_log(fixture_550.log),), holding(0, fixture_550.max_offset)) as (log, master):
        found = log.raw(owned(1001, 50_003), committed=Offset(60_000))
        assert b"".join(map(bytes, found)) == fixture_550.log[1001:50_003]
        assert set(master.reports) == {1001}
