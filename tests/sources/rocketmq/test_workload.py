"""The workload: the same for a seed, mixed as promised, and sent as asked."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.producer.producer import MessageBatch, OutgoingMessage
from sources.rocketmq.producer.workload import MAX_ATTEMPTS, send_workload, workload
from sources.rocketmq.wire.remoting import Command, ResponseCode, encode_command
from tests.sources.rocketmq.embedded.embedded import running_master, settings_for
from tests.sources.rocketmq.embedded.stores import messages_of
from tests.sources.rocketmq.scripted_master import ScriptedBroker


def messages(seed: int, items: int) -> Iterator[OutgoingMessage]:
    for item in islice(workload(seed), items):
        yield from item.messages if isinstance(item, MessageBatch) else (item,)


def digest(seed: int) -> str:
    return hashlib.sha256(repr(list(islice(workload(seed), 500))).encode()).hexdigest()


def test_the_same_seed_gives_the_same_messages() -> None:
    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


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

    def answer(request: Command) -> bytes:
        heard[request.body] += 1
        is_busy = request.body == b"c" or (request.body == b"b" and heard[request.body] == 1)
        return encode_command(request.response(2, remark="busy") if is_busy else request.response(0))

    with ScriptedBroker(answer) as broker:
        summary = send_workload(broker.address, [OutgoingMessage("T1", body) for body in (b"a", b"b", b"c")], window=2)
    assert (summary.messages, summary.refused) == (2, {2: 1})
    assert heard == {b"a": 1, b"b": 2, b"c": MAX_ATTEMPTS}
