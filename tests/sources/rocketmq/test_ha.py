"""HA frames: against section 2.1 of the RocketMQ notes, and against what real masters sent."""

import itertools
import json
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import ProtocolViolation
from sources.offsets import Offset
from sources.rocketmq.wire.ha import Frame, FrameParser, ReportParser, encode_frame, encode_report
from tests.truth import Fixture

# i64 4096, i32 5, "hello"
HELLO_AT_4096 = bytes.fromhex("0000000000001000" + "00000005") + b"hello"
HEARTBEAT_AT_4101 = bytes.fromhex("0000000000001005" + "00000000")
WORLD_AT_4101 = bytes.fromhex("0000000000001005" + "00000005") + b"world"


CUT = pytest.mark.parametrize("size", [1, 7, 1000])


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def parse(parser: FrameParser, pieces: Iterable[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in parser.feed(piece)]


def test_a_report_is_eight_big_endian_bytes() -> None:
    """HA-35"""
    assert encode_report(Offset(0x0102030405060708)) == bytes.fromhex("0102030405060708")


def test_frames_are_written_as_specified() -> None:
    """HA-34"""
    assert encode_frame(Offset(4096), b"hello") == HELLO_AT_4096
    assert encode_frame(Offset(4101)) == HEARTBEAT_AT_4101


@CUT
def test_glued_frames_are_read_in_order_however_they_are_cut(size: int) -> None:
    """HA-44; HA-46: a heartbeat among them holds nothing."""
    frames = parse(FrameParser(Offset(4096)), pieces_of(HELLO_AT_4096 + HEARTBEAT_AT_4101 + WORLD_AT_4101, size))
    assert frames == [Frame(Offset(4096), b"hello"), Frame(Offset(4101), b""), Frame(Offset(4101), b"world")]
    assert [frame.is_heartbeat for frame in frames] == [False, True, False]
    assert [frame.end for frame in frames] == [4101, 4101, 4106]


@pytest.mark.parametrize("at", range(1, len(HELLO_AT_4096)))
def test_a_frame_split_anywhere_comes_with_its_last_byte(at: int) -> None:
    """HA-43"""
    parser = FrameParser(Offset(4096))
    assert parser.feed(HELLO_AT_4096[:at]) == []
    assert parser.is_inside_body == (at > 12)
    assert parser.feed(HELLO_AT_4096[at:]) == [Frame(Offset(4096), b"hello")]


def test_a_body_is_no_view_of_what_was_fed() -> None:
    received = bytearray(HELLO_AT_4096)
    (frame,) = FrameParser(Offset(4096)).feed(received)
    received[:] = bytes(len(received))
    assert frame.body == b"hello"


def test_without_an_expectation_the_first_frame_sets_it() -> None:
    """HA-40"""
    with pytest.raises(ProtocolViolation, match="expected an offset of 0 or more, found one at -1"):
        FrameParser(None).feed(encode_frame(Offset(-1)))
    parser = FrameParser(None)
    assert parser.expected is None
    assert parser.feed(HELLO_AT_4096) == [Frame(Offset(4096), b"hello")]
    assert parser.expected == 4101


@pytest.mark.parametrize("start", [4095, 4097])
@pytest.mark.parametrize("head", [HELLO_AT_4096[:12], bytes.fromhex("0000000000001000" + "00000000")])
def test_a_head_that_does_not_continue_the_log_is_refused_before_its_body(start: int, head: bytes) -> None:
    """HA-41, HA-42; HA-46: a heartbeat too."""
    with pytest.raises(ProtocolViolation, match="does not continue the log") as caught:
        parse(FrameParser(Offset(start)), pieces_of(head, 1))
    assert caught.value.offset == start
    assert caught.value.expected == f"a frame at {start}"
    assert caught.value.found == "one at 4096"


@pytest.mark.parametrize("size", [-1, -(2**31), 1025, 2**31 - 1])
def test_an_impossible_size_is_refused_with_the_head(size: int) -> None:
    """HA-51, HA-52"""
    head = struct.pack(">qi", 4096, size)
    with pytest.raises(ProtocolViolation, match="impossible size") as caught:
        FrameParser(Offset(4096), max_frame_bytes=1024).feed(head)
    assert caught.value.offset == 4096
    assert caught.value.expected == "0 to 1024 bytes"
    assert caught.value.found == f"{size} bytes"
    assert "max_frame_bytes" in str(caught.value.hint)
    largest = encode_frame(Offset(4096), bytes(1024))
    assert FrameParser(Offset(4096), max_frame_bytes=1024).feed(largest) == [Frame(Offset(4096), bytes(1024))]


def test_after_a_violation_the_parser_stays_broken() -> None:
    parser = FrameParser(Offset(0))
    with pytest.raises(ProtocolViolation):
        parser.feed(HELLO_AT_4096)
    with pytest.raises(ProtocolViolation, match="does not continue"):
        parser.feed(encode_frame(Offset(0), b"good"))


@given(bodies=st.lists(st.binary(max_size=40)), start=st.integers(0, 2**62), cuts=st.lists(st.integers(0, 600)))
def test_any_frames_survive_any_cut(bodies: list[bytes], start: int, cuts: list[int]) -> None:
    offsets = [start, *itertools.accumulate((len(body) for body in bodies), initial=start)][1:]
    frames = [Frame(Offset(offset), body) for offset, body in zip(offsets, bodies, strict=False)]
    stream = b"".join(encode_frame(frame.offset, frame.body) for frame in frames)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[left:right] for left, right in itertools.pairwise(edges)]
    assert parse(FrameParser(Offset(start)), pieces) == frames


@pytest.mark.parametrize("name", ["ha-stream.bin", "ha-stream-from-1.bin"])
@pytest.mark.parametrize("piece_bytes", [997, 32768, 2**20])
def test_a_real_masters_stream_is_its_log(fixture_log: Fixture, name: str, piece_bytes: int) -> None:
    stream = fixture_log.wire(name)
    facts = json.loads(fixture_log.wire("notes.json"))["ha"][name]
    start, end = facts["first_data_offset"], facts["end_offset"]
    frames = parse(FrameParser(Offset(start)), pieces_of(stream, piece_bytes))
    assert len(frames) == facts["frames"]
    assert sum(frame.is_heartbeat for frame in frames) == facts["heartbeats"]
    assert max(len(frame.body) for frame in frames) == facts["largest_frame_body"]
    assert b"".join(frame.body for frame in frames) == fixture_log.log[start:end]


@CUT
def test_reports_are_cut_every_eight_bytes(size: int) -> None:
    parser = ReportParser()
    stream = struct.pack(">5q", 1, -1, 4096, 0, 2**40)
    assert [report for piece in pieces_of(stream, size) for report in parser.feed(piece)] == [1, -1, 4096, 0, 2**40]
