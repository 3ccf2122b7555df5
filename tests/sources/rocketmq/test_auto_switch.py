"""HA frames of controller mode: against section 3 of the RocketMQ notes, and masters that lie in each field."""

import json
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sources.epochs import Epoch
from sources.errors import (
    EpochsContradict,
    FailedOver,
    LogtwinError,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
)
from sources.master import Known
from sources.offsets import LogId, Offset
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.session import ha_client
from sources.rocketmq.session.ha_client import HAReadOptions, read_stream
from sources.rocketmq.session.ha_connection import confirmed_end
from sources.rocketmq.wire.auto_switch import FRAME_HEAD, AnswerParser, AutoSwitch, HandshakeAnswer, TransferHeads
from sources.rocketmq.wire.ha import Frame, FrameParser
from tests.sources.rocketmq.scripted_master import PATIENCE_S, ScriptedBroker, Server, holding
from tests.spans import span

HANDSHAKE = bytes.fromhex("00000001" + "0000" + "0001" + "ffffffffffffffff")
# state 1, 24 bytes, maximum 5000, last epoch 3; epochs 1 from 0 and 3 from 4096
ANSWER = bytes.fromhex(
    "00000001" + "00000018" + "0000000000001388" + "00000003"
    "00000001" + "0000000000000000" + "00000003" + "0000000000001000"
)  # fmt: skip


def frame(
    offset: int, body: bytes = b"", *, state: int = 2, size: int | None = None, epoch: int = 3, start: int = 4096,
    confirmed: int = 1 << 40,
) -> bytes:  # fmt: skip
    size = len(body) if size is None else size
    return struct.pack(">iiqiqq", state, size, offset, epoch, start, confirmed) + body


def parse(pieces: Iterable[bytes], start: int = 4096) -> list[Frame]:
    parser = FrameParser(Offset(start), 1024, TransferHeads())
    return [found for piece in pieces for found in parser.feed(piece)]


@pytest.mark.parametrize(
    ("head", "body", "words"),
    [
        ((2, 0, 0, 0), (), "does not answer the handshake"),
        ((1, 13, 0, 0), (), "impossible size"),
        ((1, -12, 0, 0), (), "impossible size"),
        ((1, 12 * 100_001, 0, 0), (), "impossible size"),
        ((1, 0, -1, 0), (), "ends before it starts"),
        ((1, 24, 9, 2), ((2, 0), (2, 5)), "contradict"),
        ((1, 24, 9, 2), ((1, 5), (2, 4)), "contradict"),
        ((1, 12, 9, 2), ((1, 0),), "contradict"),
        ((1, 12, 9, 1), ((1, -1),), "contradict"),
    ],
)
def test_an_answer_that_lies_is_refused(head: tuple[int, ...], body: tuple[tuple[int, int], ...], words: str) -> None:
    parser = AnswerParser()
    with pytest.raises(ProtocolViolation, match=words):
        parser.feed(struct.pack(">iiqi", *head))
        parser.feed(b"".join(struct.pack(">iq", *epoch) for epoch in body))


def test_a_new_master_may_name_its_own_epoch_for_what_is_older() -> None:
    """As 5.5.0 does in the seconds after an election."""
    assert parse([frame(4096, b"x", start=5000)]) == [Frame(Offset(4096), b"x")]


def test_a_heartbeat_without_an_offset_changes_nothing() -> None:
    assert parse([frame(-1, epoch=-1, start=-1, confirmed=-1)]) == [Frame(Offset(4096), b"")]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (frame(4096, b"x", state=1), "frame is none"),
        (frame(4097, b"x"), "does not continue the log"),
        (frame(-1, b"x"), "does not continue the log"),
        (frame(4096, size=-1), "knows no epoch of this offset"),  # as 5.5.0 without its epoch file
        (frame(4096, size=-2), "impossible size"),
        (frame(4096, size=1025), "impossible size"),
        (frame(4096, b"x") + frame(4097, b"x", epoch=2), "earlier epoch"),
    ],
)
def test_a_frame_that_lies_is_refused(stream: bytes, words: str) -> None:
    with pytest.raises(ProtocolViolation, match=words):
        parse([stream])


class ElectedMaster(Server):
    """Shakes hands, awaits a report and says what it is told to; then it stays, as long as it is asked to."""

    def __init__(self, *said: bytes, answer: bytes = ANSWER) -> None:
        super().__init__()
        self._said, self._answer = said, answer
        self.handshakes: list[bytes] = []
        self.reports: list[int] = []

    def serve(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE_S)
        self.handshakes.append(sock.recv(len(HANDSHAKE), socket.MSG_WAITALL))
        sock.sendall(self._answer)
        self._hear(sock)
        for data in self._said:
            sock.sendall(data)
        while self._hear(sock):
            pass

    def _hear(self, sock: socket.socket) -> bool:
        report = sock.recv(12, socket.MSG_WAITALL)
        if len(report) == 12:
            state, offset = struct.unpack(">iq", report)
            assert state == 2
            self.reports.append(offset)
        return bool(report)


ELECTED_BROKER = holding(1000, 5000, enableControllerMode="true", brokerRole="SYNC_MASTER")
QUICK = HAReadOptions(silence_timeout_ms=300, report_interval_ms=50, dialect=AutoSwitch())
PATIENT = replace(QUICK, silence_timeout_ms=3_600_000)  # whoever waits for it fails


def taken_from(master: ElectedMaster) -> tuple[bytes, MasterSilent]:
    """What a reader hands over from 4096 on until it waits in vain."""
    taken = b""
    with pytest.raises(MasterSilent) as caught:
        for piece in read_stream(master.address, Offset(4096), QUICK):
            taken += piece
    return taken, caught.value


UNCONFIRMED = (frame(4096, b"hello", confirmed=4098), frame(4101, b"world", confirmed=4103))


def test_what_is_not_confirmed_is_kept_back() -> None:
    with ElectedMaster(*UNCONFIRMED) as master:
        taken, error = taken_from(master)
    assert taken == b"hellowo"
    assert "have not confirmed" in error.problem
    assert (error.offset, error.found) == (4103, "4103, 3 bytes behind it")
    assert set(master.reports) == {4096}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_client, "_MOST_UNCONFIRMED_BYTES", 6)
    with (
        ElectedMaster(*UNCONFIRMED, frame(4106, b"!!!!", confirmed=4103)) as master,
        pytest.raises(MasterSilent, match="7 bytes behind it"),
    ):
        list(read_stream(master.address, Offset(4096), PATIENT))


def test_a_heartbeat_can_confirm_it() -> None:
    with ElectedMaster(*UNCONFIRMED, frame(4106, confirmed=4106)) as master:
        taken, error = taken_from(master)
    assert taken == b"helloworld"
    assert "is silent" in error.problem


@pytest.mark.parametrize(("confirmed", "end"), [(4900, 4900), (9000, 5000), (-1, 1000)])
def test_the_confirm_offset_is_asked_for_with_the_last_byte(confirmed: int, end: int) -> None:
    with ElectedMaster(frame(4999, b"x", confirmed=confirmed)) as master:
        held = span(1000, 5000)
        assert confirmed_end(master.address, held, timeout_ms=10_000) == end
    assert (master.handshakes, master.reports) == ([HANDSHAKE], [4999])


def test_a_plain_master_that_awaits_a_report_is_named() -> None:
    with ElectedMaster(answer=b"") as master, pytest.raises(MasterSilent, match="says nothing in time"):
        confirmed_end(master.address, span(0, 9), timeout_ms=200)


@pytest.mark.parametrize("answer", [b"", ANSWER], ids=["before the handshake", "after it"])
def test_a_master_that_closes_is_named(answer: bytes) -> None:
    class Leaving(Server):
        def serve(self, sock: socket.socket) -> None:
            sock.recv(16)
            sock.sendall(answer)
            if answer:
                sock.recv(12)

    with Leaving() as master, pytest.raises(MasterUnreachable, match="closed the connection before its first frame"):
        confirmed_end(master.address, span(0, 9), timeout_ms=10_000)


@pytest.mark.parametrize(
    ("known", "end"),
    [(None, 5000), (4000, 4900), (4950, 4950), (5000, 5000), (6000, 5000)],
    ids=["all", "news below the confirm offset", "not less than was seen", "no news", "a shorter log"],
)
def test_bounds_end_at_what_is_confirmed(known: int | None, end: int) -> None:
    with ElectedMaster(frame(4999, b"x", confirmed=4900)) as master, ScriptedBroker(ELECTED_BROKER) as broker:
        log = RocketMQLog(log_id=LogId("rocketmq", "b1"), master=master.address, remoting=broker.address)
        assert log.bounds(None if known is None else Offset(known)) == span(1000, end)


def following(*epochs: tuple[int, int], position: int = 4500) -> HAReadOptions:
    """Of a reader that holds the log up to `position`, by these epochs."""
    known = Known(offset=Offset(position), epochs=tuple(Epoch(number, Offset(start)) for number, start in epochs))
    return replace(PATIENT, dialect=AutoSwitch(known))


@pytest.mark.parametrize("epochs", [((1, 0), (3, 4096)), ((3, 4096),), (), ((1, 0), (3, 4096), (4, 4500))])
def test_a_history_that_the_master_goes_on_with_is_read(epochs: tuple[tuple[int, int], ...]) -> None:
    with ElectedMaster(frame(4500, b"hello", confirmed=4505)) as master:
        options = following(*epochs)
        assert next(read_stream(master.address, Offset(4500), options)) == b"hello"
    assert options.dialect.epochs == (Epoch(1, Offset(0)), Epoch(3, Offset(4096)))
    assert [one.master for one in options.dialect.epochs] == [None, str(master.address)]


@pytest.mark.parametrize(
    ("epochs", "position", "kind", "offset"),
    [
        (((1, 0), (2, 4200)), 4500, FailedOver, 4096),
        (((1, 0), (3, 4096), (4, 4400)), 4500, FailedOver, 4400),
        (((1, 0), (3, 4096)), 5001, FailedOver, 5000),
        (((2, 0),), 4500, EpochsContradict, 4500),
    ],
)
def test_another_history_is_refused_before_a_report(
    epochs: tuple[tuple[int, int], ...], position: int, kind: type[LogtwinError], offset: int
) -> None:
    with ElectedMaster() as master, pytest.raises(kind, match="epoch") as caught:
        next(read_stream(master.address, Offset(position), following(*epochs, position=position)))
    assert caught.value.offset == offset
    assert master.reports == []


def test_beyond_confirm_reads_unconfirmed_bytes() -> None:
    options = replace(PATIENT, dialect=AutoSwitch(beyond_confirm=True))
    with ElectedMaster(*UNCONFIRMED) as master:
        pieces = read_stream(master.address, Offset(4096), options)
        assert next(pieces) + next(pieces) == b"helloworld"


def test_a_look_has_the_epoch_and_the_confirm_offset() -> None:
    with ElectedMaster(frame(4999, b"x", confirmed=4900)) as master, ScriptedBroker(ELECTED_BROKER) as broker:
        log = RocketMQLog(log_id=LogId("rocketmq", "b1"), master=master.address, remoting=broker.address)
        view = log.view()
    assert view.epoch == Epoch(3, Offset(4096))
    assert view.confirmed == 4900


def test_who_knows_epochs_asks_where_they_part() -> None:
    with ElectedMaster() as master, ScriptedBroker(ELECTED_BROKER) as broker:
        log = RocketMQLog(log_id=LogId("rocketmq", "b1"), master=master.address, remoting=broker.address)
        known = Known(offset=Offset(4500), epochs=(Epoch(1, Offset(0)), Epoch(2, Offset(4200))))
        parted = log.continuing(known).parting()
        assert parted is not None
        assert parted.common == 4096
        assert log.parting() is None
    assert len(master.handshakes) == 1


# what real masters said to a learner, after an election (tests/peers/capture_auto_switch.py)


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
