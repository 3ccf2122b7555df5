"""What real masters in controller mode said to a learner, after an election (tests/peers/capture_auto_switch.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from sources.epochs import Epoch
from sources.errors import ProtocolViolation
from sources.offsets import Offset
from sources.rocketmq.wire.auto_switch import FRAME_HEAD, AnswerParser, HandshakeAnswer, TransferHeads
from sources.rocketmq.wire.ha import Frame, FrameParser

FOLDER = Path(__file__).parents[2] / "fixtures" / "auto-switch"


@dataclass(frozen=True)
class Captured:
    """`answer` to a handshake, `frames` after a report of 1; `expected` by the master's requests 1007 and 28, `log` by
    its files."""

    answer: bytes
    frames: bytes
    expected: HandshakeAnswer
    log: bytes


@pytest.fixture(scope="module", params=["5.3.3", "5.5.0"])
def captured(request: pytest.FixtureRequest) -> Captured:
    found = json.loads((FOLDER / f"{request.param}.json").read_text())
    epochs = tuple(Epoch(number, Offset(start)) for number, start in found["epochs"])
    return Captured(
        answer=bytes.fromhex(found["answer"]),
        frames=bytes.fromhex(found["frames"]),
        expected=HandshakeAnswer(Offset(found["maximum"]), epochs),
        log=bytes.fromhex(found["log"]),
    )


def answered(data: bytes) -> HandshakeAnswer | None:
    """What is understood of an answer that comes in pieces."""
    parser, at, answer = AnswerParser(), 0, None
    while (wanted := min(parser.wants, 3)) and at < len(data):
        answer, at = parser.feed(data[at : at + wanted]), at + wanted
    return answer


def parsed(*pieces: bytes) -> tuple[list[Frame], Offset | None]:
    heads = TransferHeads()
    parser = FrameParser(Offset(1), 4096, heads)
    return [frame for piece in pieces for frame in parser.feed(piece)], heads.confirmed


def test_the_answer_is_what_the_master_says_elsewhere(captured: Captured) -> None:
    assert answered(captured.answer) == captured.expected
    assert len(captured.expected.epochs) == 2


def test_the_frames_are_the_log_and_none_crosses_an_epoch(captured: Captured) -> None:
    frames, confirmed = parsed(captured.frames)
    assert b"".join(frame.body for frame in frames) == captured.log[1:]
    assert frames[-1] == Frame(captured.expected.maximum, b"")
    assert confirmed == captured.expected.maximum
    assert captured.expected.epochs[1].start in {frame.offset for frame in frames}


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_changed_byte_is_refused_or_harmless(captured: Captured, mask: int) -> None:
    """In any head: no other exception, and never other bytes than the log's; but a wrong size of the last body may take
    some of the next head, which is for the checks of records."""
    at = 0
    while at < len(captured.frames):
        for place in range(at, at + FRAME_HEAD.size):
            wrong = bytearray(captured.frames)
            wrong[place] ^= mask
            try:
                frames, _ = parsed(bytes(wrong))
            except ProtocolViolation:
                continue
            given = b"".join(frame.body for frame in frames)
            assert captured.log.startswith(given[: len(captured.log) - 1], 1)
        at += FRAME_HEAD.size + FRAME_HEAD.unpack_from(captured.frames, at)[1]
    for place in range(len(captured.answer)):
        wrong = bytearray(captured.answer)
        wrong[place] ^= mask
        try:
            answered(bytes(wrong))
        except ProtocolViolation as refused:
            assert refused.expected is not None
