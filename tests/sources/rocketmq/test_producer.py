"""The producer against scripted brokers: pipelining, answers in any order, broken and silent connections."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from unittest.mock import Mock

import pytest

from sources.errors import MasterSilent, MasterUnreachable, ProtocolViolation
from sources.rocketmq.producer.producer import MessageBatch, OutgoingMessage, Producer, SendResult
from tests.sources.rocketmq.scripted_broker import ScriptedBroker, broker


def test_one_message_goes_out_as_request_310() -> None:
    def script(peer: ScriptedBroker) -> None:
        header, body = peer.hear()
        fields = header["extFields"]
        assert (header["code"], header["flag"], body) == (310, 0, b"hello")
        assert {name: fields[name] for name in "abcdefhijkm"} == {
            "a": "logtwin", "b": "T1", "c": "TBW102", "d": "4", "e": "2", "f": "769", "h": "9",
            "i": "TAGS\x01t\x02město\x01上海\x02", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        assert abs(int(fields["g"]) - 1_800_000_000_000) < 10**12
        peer.answer(header["opaque"], msgId="AB", queueId="2", queueOffset="17")

    message = OutgoingMessage("T1", b"hello", {"TAGS": "t", "město": "上海"}, 2, flag=9, sys_flag=0x301)
    with broker(script) as address, Producer(address) as producer:
        assert producer.send(message) == SendResult(0, None, "AB", 2, 17)


def test_a_batch_goes_out_as_request_320() -> None:
    def script(peer: ScriptedBroker) -> None:
        header, body = peer.hear()
        assert (header["code"], header["extFields"]["m"], header["extFields"]["i"]) == (320, "true", "")
        first = struct.pack(">iiiii", 24, 0, 0, 5, 2) + b"b1" + struct.pack(">h", 0)
        second = struct.pack(">iiiii", 26, 0, 0, 0, 0) + struct.pack(">h", 4) + b"k\x01v\x02"
        assert body == first + second
        peer.answer(header["opaque"], msgId="A,B", queueId="0", queueOffset="3")

    batch = MessageBatch((OutgoingMessage("T1", b"b1", flag=5), OutgoingMessage("T1", b"", {"k": "v"})))
    with broker(script) as address, Producer(address) as producer:
        assert producer.send(batch).msg_id == "A,B"


def test_answers_may_come_in_any_order() -> None:
    def script(peer: ScriptedBroker) -> None:
        opaques = [peer.hear()[0]["opaque"] for _ in range(8)]
        peer.answer(99_999)  # to nobody's question
        for opaque in reversed(opaques):
            peer.answer(opaque, msgId="", queueId="0", queueOffset=str(opaques.index(opaque)))

    with broker(script) as address, Producer(address, window=8) as producer:
        results = producer.send_all(OutgoingMessage("T1", bytes((n,))) for n in range(8))
        assert [result.queue_offset for result in results] == list(range(8))


def test_no_more_than_a_window_is_on_its_way() -> None:
    def script(peer: ScriptedBroker) -> None:
        opaques = [peer.hear()[0]["opaque"] for _ in range(4)]
        peer.connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.connection.recv(1)
        peer.connection.settimeout(None)
        for opaque in opaques:
            peer.answer(opaque)
        for _ in range(2):
            peer.answer(peer.hear()[0]["opaque"])

    with broker(script) as address, Producer(address, window=4) as producer:
        assert len(list(producer.send_all([OutgoingMessage("T1", b"x")] * 6))) == 6


def test_neither_side_waits_for_the_other_to_read() -> None:
    """The broker answers at length while the producer still sends: both directions are full at some time."""
    count, remark = 400, "r" * 20_000

    def script(peer: ScriptedBroker) -> None:
        for _ in range(count):
            peer.answer(peer.hear()[0]["opaque"], code=1, remark=remark)

    with broker(script) as address, Producer(address, window=count) as producer:
        results = list(producer.send_all([OutgoingMessage("T1", bytes(20_000))] * count))
    assert {(result.code, result.remark) for result in results} == {(1, remark)}


@pytest.mark.parametrize(
    ("code", "is_stored"), [(0, True), (1, False), (2, False), (10, True), (12, True), (13, False)]
)
def test_a_refusal_is_a_result(code: int, is_stored: bool) -> None:
    with (
        broker(lambda peer: peer.answer(peer.hear()[0]["opaque"], code, "why")) as address,
        Producer(address) as producer,
    ):
        result = producer.send(OutgoingMessage("T1", b"x"))
    assert (result.code, result.remark, result.is_stored) == (code, "why", is_stored)


def test_a_silent_broker_is_given_up() -> None:
    ended = threading.Event()

    def script(_: ScriptedBroker) -> None:
        ended.wait(10)

    with broker(script) as address, Producer(address, answer_timeout_ms=100) as producer:
        with pytest.raises(MasterSilent, match="does not answer"):
            producer.send(OutgoingMessage("T1", b"x"))
        ended.set()


@pytest.mark.parametrize("not_now", [BlockingIOError(), ssl.SSLWantReadError(), ssl.SSLWantWriteError()])
def test_a_socket_that_does_not_take_it_now_is_asked_again(monkeypatch: pytest.MonkeyPatch, not_now: OSError) -> None:
    """Unless it is broken, which says what is lost."""
    monkeypatch.setattr(socket.socket, "send", Mock(side_effect=[not_now, BrokenPipeError("gone")]))

    def script(peer: ScriptedBroker) -> None:
        peer.connection.recv(1)

    with (
        broker(script) as address,
        Producer(address) as producer,
        pytest.raises(MasterUnreachable, match=r"broke; found gone\. 1 requests had no answer yet"),
    ):
        producer.send(OutgoingMessage("T1", b"x"))


def test_an_answer_without_numbers_is_a_violation() -> None:
    with (
        broker(lambda peer: peer.answer(peer.hear()[0]["opaque"], queueOffset="many")) as address,
        Producer(address) as producer,
        pytest.raises(ProtocolViolation),
    ):
        producer.send(OutgoingMessage("T1", b"x"))
