"""The HA reader against masters that fail on demand. What it reports is asserted as much as what it reads."""

import errno
import itertools
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sources.access.address import Address
from sources.errors import MasterError, MasterSilent, MasterUnreachable, ProtocolViolation
from sources.offsets import Offset
from sources.rocketmq.session import ha_client
from sources.rocketmq.session.ha_client import HAReadOptions, read_stream
from sources.rocketmq.wire.ha import encode_frame
from tests.sources.rocketmq.scripted_master import (
    HAScript,
    ScriptedMaster,
    SlaveConnection,
    after_the_report,
    serve_log,
)

LOG = b"\0" + random.Random(7).randbytes(200_000)
QUICK = HAReadOptions(connect_timeout_ms=10_000, connect_attempts=3, silence_timeout_ms=300, report_interval_ms=50)
PATIENT = replace(QUICK, silence_timeout_ms=3_600_000)  # whoever waits for it fails


def take(pieces: Iterator[bytes], count: int) -> bytes:
    """`count` bytes or a little more of the stream, cut to `count`."""
    taken = bytearray()
    while len(taken) < count:
        taken += next(pieces)
    return bytes(taken[:count])


def read(master: Address, start: int, count: int, options: HAReadOptions = PATIENT) -> bytes:
    with closing(read_stream(master, Offset(start), options)) as pieces:
        return take(pieces, count)


def failure(*scripts: HAScript, start: int = 4096, count: int = 10, options: HAReadOptions = PATIENT) -> MasterError:
    """How reading from masters that do `scripts` fails. `start` at most was promised."""
    with ScriptedMaster(*scripts) as master:
        with pytest.raises(MasterError) as caught:
            read(master.address, start, count, options)
        assert set(master.reports) <= {start}
    return caught.value


def test_bytes_come_from_the_start_on() -> None:
    """HA-02."""
    with ScriptedMaster(serve_log(LOG)) as master:
        assert read(master.address, 4096, 100_000) == LOG[4096:104_096]
        assert set(master.reports) == {4096}


def test_a_trickle_is_a_stream() -> None:
    """HA-43, HA-53: however little comes at once."""
    frames = encode_frame(Offset(4096)) + encode_frame(Offset(4096), b"hello") + encode_frame(Offset(4101), b"world")

    def trickle(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send_bytewise(frames)
        connection.await_end()

    with ScriptedMaster(trickle) as master:
        assert read(master.address, 4096, 10) == b"helloworld"


def test_a_body_on_its_way_is_no_silence() -> None:
    """HA-56: whatever comes is a sign of life."""
    body, options = bytes(25), replace(QUICK, silence_timeout_ms=1000)

    def slow(connection: SlaveConnection) -> None:
        connection.await_reports()
        frame = encode_frame(Offset(4096), body)
        connection.send(frame[:13])
        for at in range(13, len(frame)):
            connection.await_reports(at - 11)  # one more report, 50 ms later
            connection.send(frame[at : at + 1])
        connection.await_end()

    with ScriptedMaster(slow) as master:
        assert read(master.address, 4096, len(body), options) == body  # longer than the silence that is allowed


def test_a_reader_that_waits_repeats_its_first_report_and_no_other() -> None:
    """HA-37."""

    def late(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(encode_frame(Offset(4096), b"some"))
        connection.await_reports(4)
        connection.send(encode_frame(Offset(4100), b"more"))
        connection.await_end()

    with ScriptedMaster(late) as master:
        assert read(master.address, 4096, 8) == b"somemore"
        assert len(master.reports) >= 4
        assert set(master.reports) == {4096}


def test_a_hundred_random_disconnects_lose_and_repeat_nothing() -> None:
    """HA-54, HA-58, HA-69: cut at any byte, and what had come of a frame is thrown away; every connection starts where
    the first one did. The first byte, of a start at 0, is put back.
    """
    chance = random.Random(42)
    cuts = [chance.randrange(len(LOG)) for _ in range(100)]
    scripts = [serve_log(LOG, frame_bytes=100, stop_after=cut) for cut in sorted(cuts)]
    with ScriptedMaster(*scripts, serve_log(LOG)) as master:
        assert read(master.address, 0, len(LOG)) == LOG
        assert len(master.connections) > 50
        assert set(master.reports) == {1}


def test_a_link_that_is_cut_before_it_brings_anything_new_ends() -> None:
    """Each connection asks for the same start again, so a link that is always cut early never gets beyond it."""
    scripts = [serve_log(LOG, frame_bytes=100, stop_after=cut) for cut in (500, 1500, 700, 700, 700)]
    error = failure(*scripts, count=100_000)
    assert isinstance(error, MasterUnreachable)
    assert error.is_transient
    assert error.offset == 4096 + 1300  # 13 whole frames of 112 bytes in 1500
    assert "3 times in a row without anything new" in error.problem
    assert error.hint


@pytest.mark.parametrize("forgotten_after_s", [None, 22.0], ids=["", "by a master that counts connections"])
def test_a_connection_that_is_reset_is_made_anew(forgotten_after_s: float | None) -> None:
    """HA-55"""

    def reset(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(encode_frame(Offset(4096), LOG[4096:5000]))
        connection.reset()

    with ScriptedMaster(reset, reset, serve_log(LOG)) as master:
        options = replace(PATIENT, forgotten_after_s=forgotten_after_s)
        assert read(master.address, 4096, 100_000, options) == LOG[4096:104_096]
        assert len(master.connections) == 3
        assert set(master.reports) == {4096}


@pytest.mark.parametrize(
    ("data", "expected", "found"),
    [
        (encode_frame(Offset(4095), b"x"), "a frame at 4096", "one at 4095"),
        (encode_frame(Offset(4097), b"x"), "a frame at 4096", "one at 4097"),
        (encode_frame(Offset(4096), b"ab") + encode_frame(Offset(4096), b"ab"), "a frame at 4098", "one at 4096"),
        (encode_frame(Offset(5000)), "a frame at 4096", "one at 5000"),
        (struct.pack(">qi", 4096, -1), "0 to 4194304 bytes", "-1 bytes"),
        (struct.pack(">qi", 4096, 4194305), "0 to 4194304 bytes", "4194305 bytes"),
    ],
)
def test_what_no_master_sends_is_a_violation(data: bytes, expected: str, found: str) -> None:
    """HA-41, HA-46: a frame or a heartbeat elsewhere; HA-52: a negative size; HA-51: one too large for any buffer."""
    error = failure(after_the_report(data))
    assert isinstance(error, ProtocolViolation)
    assert (error.expected, error.found) == (expected, found)
    assert error.offset is not None
    assert error.hint


def test_a_master_that_says_nothing_is_silent() -> None:
    """HA-57"""
    error = failure(after_the_report(b""), options=QUICK)
    assert isinstance(error, MasterSilent)
    assert (error.offset, error.found) == (4096, "nothing")
    assert error.expected == "data or a heartbeat within 0.3 s"


def test_heartbeats_without_data_are_silence() -> None:
    def heartbeats(connection: SlaveConnection) -> None:
        for count in itertools.count(1):
            connection.await_reports(count)
            connection.send(encode_frame(Offset(4096)))

    error = failure(heartbeats, options=replace(QUICK, silence_timeout_ms=1000))
    assert isinstance(error, MasterSilent)
    assert error.problem.endswith("sends only heartbeats, no data")
    assert error.offset == 4096
    assert "expired" in str(error.hint)


def test_half_a_heartbeat_again_and_again_is_no_progress() -> None:
    """HA-56."""

    def halves(connection: SlaveConnection) -> None:
        frame = encode_frame(Offset(4096))
        for count in itertools.count(1):
            connection.await_reports(count)
            connection.send(frame[6:] + frame[:6] if count > 1 else frame[:6])

    assert isinstance(failure(halves, options=QUICK), MasterSilent)


def test_the_largest_frames_are_taken() -> None:
    """HA-33: a slave of the broker's own kind has room for 4 MiB."""
    body = random.Random(3).randbytes(4 * 1024 * 1024)
    with ScriptedMaster(after_the_report(encode_frame(Offset(4096), body))) as master:
        assert read(master.address, 4096, len(body)) == body


def test_a_long_stream_of_odd_frames_is_the_same_bytes() -> None:
    """HA-50: more than any buffer holds, in frames that fit into none evenly."""
    log = random.Random(5).randbytes(13 * 1024 * 1024)
    with ScriptedMaster(serve_log(log, first_offset=1, frame_bytes=32_749)) as master:
        assert read(master.address, 1, len(log)) == log


def test_a_master_that_counts_connections_has_ended_the_one_that_is_done_with() -> None:
    """Before the reading is over: so nobody can come later and be counted beside it."""
    has_ended = threading.Event()

    def end_late(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(encode_frame(Offset(4096), LOG[:100_000]))
        connection.await_end()
        assert not has_ended.wait(0.1)
        has_ended.set()

    with ScriptedMaster(end_late) as master:
        assert read(master.address, 4096, 10, replace(PATIENT, forgotten_after_s=22.0)) == LOG[:10]
        assert has_ended.is_set()


@pytest.mark.parametrize("size", [0, 100_000], ids=["silent", "never stops streaming"])
def test_an_end_that_the_master_does_not_confirm_fails_the_read(size: int) -> None:
    may_leave = threading.Event()

    def stay(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(encode_frame(Offset(4096), b"hello"))
        while not may_leave.wait(0 if size else 20):
            connection.send(encode_frame(Offset(4101), bytes(size)) * bool(size))

    with ScriptedMaster(stay) as master:
        with pytest.raises(MasterSilent, match="does not close the finished connection") as caught:
            read(master.address, 4096, 5, replace(PATIENT, forgotten_after_s=0.3))
        assert caught.value.is_transient
        assert caught.value.offset == 4096
        assert read(master.address, 4096, 5) == b"hello"  # where nobody counts, nobody waits
        may_leave.set()


class Broken(socket.socket):
    """One whose master has ended its half and then reset it, as Linux tells whoever sends first."""

    def sendall(self, *_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def shutdown(self, how: int) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


def test_a_connection_reset_by_the_master_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_client, "connect_slave", lambda *_, **__: Broken())
    with pytest.raises(MasterUnreachable, match="closed the connection") as caught:
        read(Address("127.0.0.1", 1), 4096, 10, replace(QUICK, forgotten_after_s=0.1, connect_attempts=2))
    assert "Broken pipe" in str(caught.value.found)


def test_the_time_between_two_reads_is_the_callers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    options, ahead_s = replace(QUICK, silence_timeout_ms=60_000), [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0], sleep=time.sleep)
    monkeypatch.setattr(ha_client, "time", clock)
    with ScriptedMaster(serve_log(LOG)) as master, closing(read_stream(master.address, Offset(1), options)) as pieces:
        assert take(pieces, 1000)
        ahead_s[0] = 120.0  # the caller decodes and writes
        assert next(pieces)
