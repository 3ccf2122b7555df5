"""A RocketMQ log as a master log: from files and over HA, the same records; and what goes wrong, by name."""

from __future__ import annotations

import pickle
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ConfigurationError,
    CorruptRecord,
    LogtwinError,
    MasterError,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
)
from sources.master import Chunk, MasterLog, Session
from sources.offsets import LogId, Offset, OffsetRange
from sources.rocketmq.address import Address
from sources.rocketmq.ha import encode_frame
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.remoting import Command, encode_command
from tests.sources.rocketmq.scripted_master import (
    HAScript,
    ScriptedBroker,
    ScriptedMaster,
    SlaveConnection,
    answer_as,
    holding,
    serve_log,
)
from tests.truth import Fixture

LOG_ID = LogId("rocketmq", "broker-a")
NOWHERE = Address("127.0.0.1", 1)
ALL = 2**62


def owned(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


@contextmanager
def over_ha(
    scripts: tuple[HAScript, ...], answer: Callable[[Command], bytes], **options: Any
) -> Iterator[tuple[RocketMQLog, ScriptedMaster]]:
    """A log over HA from scripted peers; patient, because this machine may be busy."""
    with ScriptedMaster(*scripts) as master, ScriptedBroker(answer) as broker:
        options = {"connect_timeout_ms": 10_000, "connect_attempts": 2} | options
        yield RocketMQLog(log_id=LOG_ID, master=master.address, remoting=broker.address, **options), master


def serving(log: bytes, **options: Any) -> Any:
    return over_ha((serve_log(log),), holding(0, len(log)), **options)


def read(log: MasterLog, start: int, end: int, *, committed: int | None = ALL, boundary: bool = True) -> list[Chunk]:
    """Chunks whose `raw` outlives the iteration."""
    position = None if committed is None else Offset(committed)
    chunks = log.read(owned(start, end), committed=position, boundary=boundary)
    return [Chunk(chunk.covered, chunk.records, memoryview(bytes(chunk.raw))) for chunk in chunks]


def offsets(chunks: list[Chunk]) -> list[int]:
    return [offset for chunk in chunks for offset in chunk.records.column("offset").to_pylist()]


def raw(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk.raw for chunk in chunks)


def truth_between(fixture: Fixture, start: int, end: int) -> list[int]:
    """Offsets of the records that start in [start, end)."""
    return [row["physical_offset"] for row in fixture.rows if start <= row["physical_offset"] < end]


def assert_is(chunks: list[Chunk], fixture: Fixture, start: int, end: int) -> None:
    """The chunks join, and hold exactly the records that start in [start, end)."""
    expected = truth_between(fixture, start, end)
    ends = {row["physical_offset"]: row["physical_offset"] + row["size"] for row in fixture.rows}
    assert offsets(chunks) == expected
    assert chunks[0].covered.start == expected[0]
    assert chunks[-1].covered.end == ends[expected[-1]]
    assert [chunk.covered.end for chunk in chunks[:-1]] == [chunk.covered.start for chunk in chunks[1:]]
    assert raw(chunks) == fixture.log[expected[0] : ends[expected[-1]]]


# Reading


@pytest.mark.parametrize("chunk_bytes", [1, 10_000, 1_000_000, 8 * 1024 * 1024])
def test_a_whole_log_comes_over_ha(fixture_log: Fixture, chunk_bytes: int) -> None:
    with serving(fixture_log.log, chunk_bytes=chunk_bytes) as (log, master):
        chunks = read(log, 0, fixture_log.max_offset, committed=None)
        assert set(master.reports) == {1}

    assert_is(chunks, fixture_log, 0, fixture_log.max_offset)
    largest = max(row["size"] for row in fixture_log.rows)
    assert max(len(chunk.raw) for chunk in chunks) <= max(chunk_bytes, largest) + 32 * 1024


def test_a_whole_log_comes_from_its_files(fixture_log: Fixture) -> None:
    log = RocketMQLog(log_id=LOG_ID, path=str(fixture_log.commitlog_path), chunk_bytes=500_000)

    assert log.bounds() == owned(0, fixture_log.max_offset)
    assert_is(read(log, 0, fixture_log.max_offset, committed=None), fixture_log, 0, fixture_log.max_offset)


def test_files_and_ha_give_the_same_records_and_both_give_the_bytes_back(fixture_log: Fixture) -> None:
    files = RocketMQLog(log_id=LOG_ID, path=str(fixture_log.commitlog_path))
    by_path = read(files, 0, fixture_log.max_offset)
    with serving(fixture_log.log) as (log, _):
        by_ha = read(log, 0, fixture_log.max_offset)

    assert [row for chunk in by_ha for row in chunk.records.to_pylist()] == [
        row for chunk in by_path for row in chunk.records.to_pylist()
    ]
    for chunks in (by_path, by_ha):
        assert b"".join(files.restore(chunk.records) for chunk in chunks) == fixture_log.log


def test_a_range_owns_the_records_that_start_in_it(fixture_550: Fixture) -> None:
    starts = truth_between(fixture_550, 0, ALL)
    chance = random.Random(3)
    with serving(fixture_550.log, chunk_bytes=50_000) as (log, master):
        for _ in range(8):
            first, last = sorted(chance.sample(range(len(starts) - 1), 2))
            end = starts[last] + 1  # just inside the last record
            assert_is(read(log, starts[first], end, committed=starts[first]), fixture_550, starts[first], end)
            assert set(master.connections[-1].reports) == {max(starts[first], 1)}


def test_without_a_boundary_reading_begins_at_the_next_record(fixture_550: Fixture) -> None:
    size = 150_000
    with serving(fixture_550.log, chunk_bytes=40_000, parallel_reads=True, split_bytes=size) as (log, _):
        pieces = log.plan(owned(0, fixture_550.max_offset))
        parts = [read(log, piece.start, piece.end, committed=None, boundary=piece.start == 0) for piece in pieces]

    assert len(pieces) > 20
    assert [offset for part in parts for offset in offsets(part)] == truth_between(fixture_550, 0, ALL)
    assert b"".join(map(raw, parts)) == fixture_550.log


def test_a_range_inside_one_record_owns_nothing(fixture_550: Fixture) -> None:
    big = max(fixture_550.rows, key=lambda row: int(row["size"]))
    start = big["physical_offset"] + 10
    with serving(fixture_550.log, chunk_bytes=1000, parallel_reads=True) as (log, _):
        assert read(log, start, start + 100, boundary=False) == []


def test_a_range_inside_the_last_record_owns_nothing(fixture_550: Fixture) -> None:
    end = fixture_550.max_offset
    with serving(fixture_550.log, parallel_reads=True) as (log, _):
        assert read(log, end - 20, end, boundary=False) == []


@pytest.mark.parametrize("at", [0, 4, 34, 95], ids=["size", "magic", "its own offset", "body"])
def test_a_damaged_record_is_not_passed_over_by_a_search(fixture_550: Fixture, at: int) -> None:
    rows = fixture_550.rows
    before, behind = rows[99]["physical_offset"], rows[100]["physical_offset"]
    log_bytes = damaged(fixture_550.log, behind + at)

    with serving(log_bytes, parallel_reads=True) as (log, _), pytest.raises(CorruptRecord) as caught:
        read(log, 0, before + 1, boundary=False)
    assert caught.value.offset == behind


def test_a_search_that_begins_at_a_damaged_record_does_not_pass_over_it(fixture_550: Fixture) -> None:
    place = fixture_550.rows[100]["physical_offset"]
    log_bytes = damaged(fixture_550.log, place + 95)

    with serving(log_bytes, parallel_reads=True) as (log, _), pytest.raises(CorruptRecord) as caught:
        read(log, place, place + 100_000, boundary=False)
    assert caught.value.offset == place


def test_an_empty_range_needs_no_master() -> None:
    log = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE)

    assert read(log, 5, 5) == []


def test_a_hundred_random_disconnects_give_identical_bytes(fixture_497: Fixture) -> None:
    chance = random.Random(11)
    cuts = sorted(chance.randrange(len(fixture_497.log)) for _ in range(100))
    scripts = tuple(serve_log(fixture_497.log, frame_bytes=4096, stop_after=cut) for cut in cuts)
    with over_ha(
        (*scripts, serve_log(fixture_497.log)),
        holding(0, fixture_497.max_offset),
        connect_attempts=101,
        chunk_bytes=100_000,
    ) as (log, master):
        chunks = read(log, 0, fixture_497.max_offset, committed=None)
        assert len(master.connections) > 80
        assert set(master.reports) == {1}
    assert_is(chunks, fixture_497, 0, fixture_497.max_offset)


def test_a_log_travels_to_tasks() -> None:
    log = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE, chunk_bytes=5)

    assert pickle.loads(pickle.dumps(log)) == log  # noqa: S301 – our own pickle


# Planning


def test_over_ha_a_range_is_one_piece_unless_nobody_waits() -> None:
    alone = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE, split_bytes=10)
    parallel = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE, split_bytes=10, parallel_reads=True)
    pieces = (owned(0, 10), owned(10, 20), owned(20, 25))

    assert alone.plan(owned(0, 25)) == (owned(0, 25),)
    assert parallel.plan(owned(0, 25)) == pieces
    assert [log.cuts_at_records for log in (alone, parallel)] == [False, False]
    assert parallel.boundary_after(Offset(7), Offset(25)) == 7
    assert alone.plan(owned(7, 7)) == parallel.plan(owned(7, 7)) == ()


def test_files_are_cut_at_records(fixture_log: Fixture) -> None:
    log = RocketMQLog(log_id=LOG_ID, path=str(fixture_log.commitlog_path), split_bytes=200_000)
    starts = truth_between(fixture_log, 0, ALL)

    pieces = log.plan(owned(0, fixture_log.max_offset))

    assert log.cuts_at_records
    cut, expected = 0, []
    while cut < fixture_log.max_offset:
        end = min((start for start in starts if start >= cut + 200_000), default=fixture_log.max_offset)
        expected.append(owned(cut, end))
        cut = end
    assert pieces == tuple(expected)


# The promise that a start is


@pytest.mark.parametrize(("start", "committed"), [(1000, 999), (1000, None), (1, 0)])
def test_no_connection_starts_above_the_committed_position(start: int, committed: int | None) -> None:
    with over_ha((serve_log(b""),), holding(0, 5000)) as (log, master):
        with pytest.raises(ConfigurationError, match="acknowledge what is not committed") as caught:
            read(log, start, 2000, committed=committed)
        assert master.connections == []

    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", start)
    assert "parallel_reads" in str(caught.value.hint)


def test_below_the_masters_minimum_there_is_nothing_left_to_promise(fixture_550: Fixture) -> None:
    minimum = fixture_550.rows[50]["physical_offset"]
    log_bytes = fixture_550.log[minimum:]
    script = serve_log(log_bytes, first_offset=minimum)
    with over_ha((script,), holding(minimum, fixture_550.max_offset)) as (log, master):
        assert_is(read(log, minimum, minimum + 50_000, committed=None), fixture_550, minimum, minimum + 50_000)
        assert set(master.reports) == {minimum}


# Faults. Each is a named error with log, offset, expected, found and a hint, soon.


def failure(
    scripts: tuple[HAScript, ...], answer: Callable[[Command], bytes], start: int = 0, end: int = 1000, **options: Any
) -> LogtwinError:
    with over_ha(scripts, answer, **options) as (log, master):
        started = time.monotonic()
        with pytest.raises(LogtwinError) as caught:
            read(log, start, end, committed=start)
        assert time.monotonic() - started < 8  # not the 10 s of the timeouts
        assert set(master.reports) <= {max(start, 1)}
    error = caught.value
    assert error.log == "rocketmq/broker-a"
    assert None not in (error.expected, error.found, error.hint)
    return error


def test_below_the_minimum() -> None:
    error = failure((serve_log(b""),), holding(4096, 8192), start=100)

    assert isinstance(error, BelowMinimum)
    assert error.offset == 100
    assert error.expected == "4096 or more: the master holds [4096, 8192)"


@pytest.mark.parametrize(("start", "end", "offset"), [(9000, 9100, 9000), (5000, 9000, 9000)])
def test_above_the_maximum(start: int, end: int, offset: int) -> None:
    error = failure((serve_log(b""),), holding(4096, 8192), start=start, end=end)

    assert isinstance(error, AboveMaximum)
    assert error.offset == offset
    assert error.expected == "8192 or less: the master holds [4096, 8192)"


def silent(_: Command) -> bytes:
    return b""


def test_a_runtime_info_that_does_not_come() -> None:
    error = failure((serve_log(b""),), silent, connect_timeout_ms=200)

    assert isinstance(error, MasterSilent)


def test_a_broker_that_refuses() -> None:
    error = failure((serve_log(b""),), lambda request: encode_command(request.response(16, remark="no")))

    assert isinstance(error, MasterError)
    assert error.found == "code 16 NO_PERMISSION: no"


def after_the_report(data: bytes) -> HAScript:
    def script(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(data)
        connection.await_end()

    return script


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (after_the_report(encode_frame(Offset(2), b"x")), ProtocolViolation),
        (after_the_report(struct.pack(">qi", 1, -1)), ProtocolViolation),
        (after_the_report(struct.pack(">qi", 1, 2**30)), ProtocolViolation),
        (after_the_report(b""), MasterSilent),
        (after_the_report(encode_frame(Offset(1))), MasterSilent),
        (lambda connection: connection.await_reports() and None, MasterUnreachable),
    ],
)
def test_a_fault_of_the_stream(script: HAScript, kind: type[MasterError]) -> None:
    silence_timeout_ms = 300 if kind is MasterSilent else 10_000

    assert isinstance(failure((script,), holding(0, 5000), silence_timeout_ms=silence_timeout_ms), kind)


def test_nobody_at_the_ha_port() -> None:
    with ScriptedBroker(holding(0, 5000)) as broker:
        log = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=broker.address, connect_attempts=1)
        with pytest.raises(MasterUnreachable, match=r"rocketmq/broker-a: cannot connect to 127\.0\.0\.1:1"):
            read(log, 0, 1000)


def test_nobody_at_the_remoting_port() -> None:
    log = RocketMQLog(log_id=LOG_ID, master=NOWHERE, remoting=NOWHERE, connect_attempts=1)

    with pytest.raises(MasterUnreachable, match=r"rocketmq/broker-a: cannot connect"):
        log.bounds()


def damaged(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 0x55]) + log[at + 1 :]


@pytest.mark.parametrize("at", [4, 100], ids=["magic", "body or behind it"])
def test_a_record_that_was_damaged(fixture_550: Fixture, at: int) -> None:
    row = next(row for row in fixture_550.rows[10:] if row["size"] > 500)
    place = row["physical_offset"]
    log_bytes = damaged(fixture_550.log, place + at)

    error = failure((serve_log(log_bytes),), holding(0, len(log_bytes)), end=place + 1)

    assert isinstance(error, CorruptRecord)
    assert error.offset == place


def test_a_start_that_is_no_record_boundary(fixture_550: Fixture) -> None:
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


def test_a_last_record_that_reaches_past_the_end_of_the_log(fixture_550: Fixture) -> None:
    last = fixture_550.rows[-1]
    place, size = last["physical_offset"], last["size"]

    error = failure(
        (serve_log(fixture_550.log[: place + size - 1]),),
        holding(0, place + size - 1),
        start=place,
        end=place + size - 1,
    )

    assert isinstance(error, CorruptRecord)
    assert error.offset == place
    assert (error.expected, error.found) == (f"at most {size - 1} bytes", str(size))


def test_an_end_too_small_for_any_record(fixture_550: Fixture) -> None:
    place = fixture_550.rows[-1]["physical_offset"]

    error = failure((serve_log(fixture_550.log[: place + 5]),), holding(0, place + 5), start=place, end=place + 5)

    assert isinstance(error, CorruptRecord)


def test_a_record_that_was_arriving_when_the_end_was_asked_for(fixture_550: Fixture) -> None:
    last = fixture_550.rows[-1]
    place, end = last["physical_offset"], last["physical_offset"] + last["size"]
    ends = iter([end - 5])  # a slave as a master: its log may end inside a record, for a moment

    def answer(request: Command) -> bytes:
        return holding(0, next(ends, end))(request)

    with over_ha((serve_log(fixture_550.log),), answer) as (log, _):
        chunks = read(log, place, end - 5, committed=place)
    assert offsets(chunks) == [place]


# What the master counts


def test_the_masters_own_count_of_acknowledgements(fixture_550: Fixture) -> None:
    body = b'{"haConnectionInfo":[{"slaveAckOffset":5},{"slaveAckOffset":100}]}'
    with over_ha((serve_log(b""),), lambda request: encode_command(request.response(0, body=body))) as (log, _):
        assert log.acknowledged_by_master() == 100
    with over_ha((serve_log(b""),), answer_as(fixture_550.wire("907.resp.bin"))) as (log, _):
        assert log.acknowledged_by_master() is None
    with over_ha((serve_log(b""),), lambda request: encode_command(request.response(3))) as (log, _):
        assert log.acknowledged_by_master() is None
    assert RocketMQLog(log_id=LOG_ID, path="commitlog").acknowledged_by_master() is None


# Sessions


def test_a_session_over_ha_promises_what_it_is_told() -> None:
    with over_ha((lambda connection: connection.await_end(),), holding(0, 5000)) as (log, master):
        session: Session = log.open_session()
        session.acknowledge(Offset(4096))
        master.await_connection(1).await_report_of(4096)
        session.close()
        assert session.acknowledged == 4096


def test_a_session_promises_nothing_above_the_masters_end() -> None:
    with over_ha((lambda connection: connection.await_end(),), holding(0, 4095)) as (log, master):
        session = log.open_session()
        session.acknowledge(Offset(4096))
        master.await_connection(1).await_end()
        session.close()
    assert master.reports == []


def test_files_take_no_promises(tmp_path: Path) -> None:
    session = RocketMQLog(log_id=LOG_ID, path=str(tmp_path)).open_session()
    session.acknowledge(Offset(5))
    session.close()

    assert session.acknowledged is None


# Configuration


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": "commitlog", "master": NOWHERE},
        {"path": "commitlog", "remoting": NOWHERE},
        {"path": "commitlog", "master": NOWHERE, "remoting": NOWHERE},
        {"master": NOWHERE},
        {"remoting": NOWHERE},
    ],
)
def test_there_is_exactly_one_way_to_a_log(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="either path, or master and remoting"):
        RocketMQLog(log_id=LOG_ID, **given)
