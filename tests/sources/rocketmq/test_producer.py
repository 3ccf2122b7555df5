"""The producer against scripted brokers: pipelining, answers in any order, broken and silent ones; and the workload."""

import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sources.errors import MasterError, MasterSilent, MasterUnreachable, ProtocolViolation
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.producer.producer import MessageBatch, OutgoingMessage, Producer, SendResult
from sources.rocketmq.producer.workload import MAX_ATTEMPTS, send_workload, workload
from sources.rocketmq.wire.remoting import Command, FrameBuffer, ResponseCode, encode_command
from tests.sources.rocketmq.embedded.embedded import running_master, settings_for
from tests.sources.rocketmq.embedded.stores import messages_of
from tests.sources.rocketmq.scripted_master import ScriptedBroker

ONE = OutgoingMessage("T1", b"x")


def answer(request: Command, code: int = 0, remark: str | None = None, **fields: str) -> bytes:
    return encode_command(request.response(code, ext_fields=fields, remark=remark))


def test_one_message_goes_out_as_request_310() -> None:
    message = OutgoingMessage("T1", b"hello", {"TAGS": "t", "město": "上海"}, 2, flag=9, sys_flag=0x301)
    stored: dict[str, Any] = {"msgId": "AB", "queueId": "2", "queueOffset": "17"}
    with ScriptedBroker(lambda request: answer(request, **stored)) as broker, Producer(broker.address) as producer:
        assert producer.send(message) == SendResult(0, None, "AB", 2, 17)
    (request,) = broker.requests
    assert (request.code, request.flag, request.body) == (310, 0, b"hello")
    fields = dict(request.ext_fields)
    assert abs(int(fields.pop("g")) - 1_800_000_000_000) < 10**12
    assert {name: fields[name] for name in "abcdefhijkm"} == {
        "a": "logtwin", "b": "T1", "c": "TBW102", "d": "4", "e": "2", "f": "769", "h": "9",
        "i": "TAGS\x01t\x02město\x01上海\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def test_a_batch_goes_out_as_request_320() -> None:
    batch = MessageBatch((OutgoingMessage("T1", b"b1", flag=5), OutgoingMessage("T1", b"", {"k": "v"})))
    stored: dict[str, Any] = {"msgId": "A,B", "queueId": "0", "queueOffset": "3"}
    with ScriptedBroker(lambda request: answer(request, **stored)) as broker, Producer(broker.address) as producer:
        assert producer.send(batch).msg_id == "A,B"
    (request,) = broker.requests
    assert (request.code, request.ext_fields["m"], request.ext_fields["i"]) == (320, "true", "")
    first = struct.pack(">iiiii", 24, 0, 0, 5, 2) + b"b1" + struct.pack(">h", 0)
    second = struct.pack(">iiiii", 26, 0, 0, 0, 0) + struct.pack(">h", 4) + b"k\x01v\x02"
    assert request.body == first + second


def test_answers_may_come_in_any_order() -> None:
    asked: list[Command] = []

    def backwards(request: Command) -> bytes:
        asked.append(request)
        if len(asked) < 8:
            return b""
        to_nobody = answer(Command(310, opaque=99_999))
        return to_nobody + b"".join(
            answer(one, msgId="", queueId="0", queueOffset=str(asked.index(one))) for one in reversed(asked)
        )

    with ScriptedBroker(backwards) as broker, Producer(broker.address, window=8) as producer:
        results = producer.send_all(OutgoingMessage("T1", bytes((n,))) for n in range(8))
        assert [result.queue_offset for result in results] == list(range(8))


class Waiting(ScriptedBroker):
    """Answers once there are four requests and nothing more comes for a time."""

    at_once = 0

    def serve(self, sock: socket.socket) -> None:
        frames = FrameBuffer()
        with suppress(TimeoutError):
            while True:
                self.requests += frames.feed(sock.recv(4096))
                sock.settimeout(None if len(self.requests) < 4 else 0.2)
        sock.settimeout(None)
        self.at_once = len(self.requests)
        sock.sendall(b"".join(map(answer, self.requests)))
        super().serve(sock)


def test_no_more_than_a_window_is_on_its_way() -> None:
    with Waiting(answer) as broker, Producer(broker.address, window=4) as producer:
        assert len(list(producer.send_all([ONE] * 6))) == len(broker.requests) == 6
    assert broker.at_once == 4


def test_neither_side_waits_for_the_other_to_read() -> None:
    """The broker answers at length while the producer still sends: both directions are full at some time."""
    count, remark = 400, "r" * 20_000
    with (
        ScriptedBroker(lambda request: answer(request, 1, remark)) as broker,
        Producer(broker.address, window=count) as producer,
    ):
        results = list(producer.send_all([OutgoingMessage("T1", bytes(20_000))] * count))
    assert {(result.code, result.remark) for result in results} == {(1, remark)}


@pytest.mark.parametrize(
    ("code", "is_stored"), [(0, True), (1, False), (2, False), (10, True), (12, True), (13, False)]
)
def test_a_refusal_is_a_result(code: int, is_stored: bool) -> None:
    with ScriptedBroker(lambda request: answer(request, code, "why")) as broker, Producer(broker.address) as producer:
        result = producer.send(ONE)
    assert (result.code, result.remark, result.is_stored) == (code, "why", is_stored)


@pytest.mark.parametrize(
    ("said", "kind"),
    [(lambda _: b"", MasterSilent), (lambda request: answer(request, queueOffset="many"), ProtocolViolation)],
    ids=["silent", "no number"],
)
def test_a_broker_that_gives_no_answer_is_given_up(said: Callable[[Command], bytes], kind: type[MasterError]) -> None:
    with (
        ScriptedBroker(said) as broker,
        Producer(broker.address, answer_timeout_ms=500) as producer,
        pytest.raises(kind),
    ):
        producer.send(ONE)


@pytest.mark.parametrize("not_now", [BlockingIOError(), ssl.SSLWantReadError(), ssl.SSLWantWriteError()])
def test_a_socket_that_does_not_take_it_now_is_asked_again(monkeypatch: pytest.MonkeyPatch, not_now: OSError) -> None:
    """Unless it is broken, which says what is lost."""
    monkeypatch.setattr(socket.socket, "send", Mock(side_effect=[not_now, BrokenPipeError("gone")]))
    with (
        ScriptedBroker(answer) as broker,
        Producer(broker.address) as producer,
        pytest.raises(MasterUnreachable, match=r"broke; found gone\. 1 requests had no answer yet"),
    ):
        producer.send(ONE)


# the workload: the same for a seed, mixed as promised, and sent as asked


def messages(seed: int, items: int) -> Iterator[OutgoingMessage]:
    for item in islice(workload(seed), items):
        yield from item.messages if isinstance(item, MessageBatch) else (item,)


def test_the_same_seed_gives_the_same_messages() -> None:
    one, again, other = (list(islice(workload(seed), 500)) for seed in (1, 1, 2))
    assert one == again != other


def test_everything_is_in_the_mix() -> None:
    items = list(islice(workload(5), 3000))
    all_messages = list(messages(5, 3000))
    sizes = sorted(len(message.body) for message in all_messages)
    assert {message.topic for message in all_messages} == {"orders", "payments", "user-events", "telemetry"}
    assert {message.queue_id for message in all_messages} == {0, 1, 2, 3}
    assert set(Counter(message.sys_flag for message in all_messages)) == {0, 0x1, 0x101, 0x201, 0x301}
    assert (sizes[0], 4000 < sizes[-1] <= 200_000) == (0, True)
    assert 700 < sizes[len(sizes) // 2] < 1400
    assert any(isinstance(item, MessageBatch) for item in items)
    assert any("TAGS" not in message.properties for message in all_messages)
    assert any("KEYS" not in message.properties for message in all_messages)
    assert any(not value.isascii() for message in all_messages for value in message.properties.values())


def test_exactly_so_many_messages_are_sent_and_all_are_stored(tmp_path: Path) -> None:
    with running_master(settings_for(tmp_path)) as master:
        summary = send_workload(master.address, workload(10), count=1234)
    assert (summary.messages, summary.refused) == (1234, {})
    log = tmp_path / "commitlog"
    stored = messages_of(tmp_path, max(_ends(log)))
    sent = [message for message, _ in zip(messages(10, 1234), range(1234), strict=False)]
    assert [(m.topic, m.queue_id, m.body, m.sys_flag) for m in stored] == [
        (m.topic, m.queue_id, m.body, m.sys_flag) for m in sent
    ]
    assert summary.bytes == sum(len(message.body) for message in sent)
    assert all(
        m.properties.startswith(f"UNIQ_KEY\x01{s.properties['UNIQ_KEY']}\x02".encode())
        for m, s in zip(stored, sent, strict=True)
    )


def _ends(log: Path) -> Iterator[int]:
    """Where the log ends: after its last byte that is no zero (a properties block ends in 0x02)."""
    for path in log.iterdir():
        yield int(path.name) + len(path.read_bytes().rstrip(b"\0"))


def test_refusals_and_warnings_are_counted_and_do_not_stop_it(tmp_path: Path) -> None:
    """MS-04: nobody is there to acknowledge, and messages are stored all the same."""
    items: list[OutgoingMessage | MessageBatch] = [
        OutgoingMessage("T1", b"x"),
        OutgoingMessage("TBW102", b"x"),
        MessageBatch((OutgoingMessage("no/topic", b"x"),) * 3),
        OutgoingMessage("T1", b"yy"),
    ]
    with running_master(settings_for(tmp_path), double_write=DoubleWriteSettings(role="SYNC_MASTER")) as master:
        summary = send_workload(master.address, items)
    assert (summary.messages, summary.bytes, summary.refused) == (2, 3, {16: 1, 29: 3})
    assert summary.warned == {ResponseCode.SLAVE_NOT_AVAILABLE: 2}


def test_what_a_broker_was_too_busy_for_is_sent_again_until_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    heard: Counter[bytes] = Counter()

    def busy(request: Command) -> bytes:
        heard[request.body] += 1
        is_busy = request.body == b"c" or (request.body == b"b" and heard[request.body] == 1)
        return encode_command(request.response(2, remark="busy") if is_busy else request.response(0))

    with ScriptedBroker(busy) as broker:
        summary = send_workload(broker.address, [OutgoingMessage("T1", body) for body in (b"a", b"b", b"c")], window=2)
    assert (summary.messages, summary.refused) == (2, {2: 1})
    assert heard == {b"a": 1, b"b": 2, b"c": MAX_ATTEMPTS}
