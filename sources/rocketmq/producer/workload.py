"""A workload for a broker: messages made from a seed, sent as fast as the broker takes them, or at a rate."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sources.access.address import Address
from sources.rocketmq.producer.producer import DEFAULT_WINDOW, MessageBatch, OutgoingMessage, Producer, SendResult
from sources.rocketmq.producer.shop_messages import Shop
from sources.rocketmq.wire.connection import NO_SECURITY
from sources.rocketmq.wire.remoting import ResponseCode
from sources.rocketmq.wire.security import RemotingSecurity

MAX_ATTEMPTS: Final = 20
_BUSY_PAUSE_S: Final = 0.05
_WORTH_SLEEPING_S: Final = 0.01
"""If sending is ahead of the rate by less than this, it goes on: a sleep per message would end the pipelining."""
ANSWER_TIMEOUT_MS: Final = 60_000
"""A SYNC_MASTER answers when its slaves have the message, or after its slaveTimeout, which is 30 s in the demo."""

Item = OutgoingMessage | MessageBatch


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """What was sent, and its results."""

    messages: int = 0  # stored by the broker
    warned: dict[int, int] = field(default_factory=dict)  # those of them with a warning, by code: 10 to 12
    bytes: int = 0  # of their bodies, as sent
    seconds: float = 0.0
    refused: dict[int, int] = field(default_factory=dict)  # messages, by the broker's code

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0


def workload(seed: int) -> Iterator[Item]:
    shop = Shop(seed)
    while True:
        yield shop.next_item()


def send_workload(
    address: Address,
    items: Iterable[Item],
    *,
    count: int | None = None,
    duration_s: float | None = None,
    rate_per_s: float | None = None,
    window: int = DEFAULT_WINDOW,
    security: RemotingSecurity = NO_SECURITY,
) -> WorkloadSummary:
    """Send `items` to the broker at `address`, until they end, or exactly `count` messages, or for `duration_s`.

    `rate_per_s` (messages) limits the average speed. An item that a broker is too busy for (code 2: not stored) is sent
    again, a few times, after those sent meanwhile; any other refusal is counted, and sending goes on. Raises what
    Producer raises.
    """
    with Producer(address, window=window, answer_timeout_ms=ANSWER_TIMEOUT_MS, security=security) as producer:
        sender = _Sender(producer)
        for item in _limited(items, count):
            if duration_s is not None and sender.seconds >= duration_s:
                break
            if rate_per_s is not None:
                sender.hold_back(rate_per_s)
            sender.send(item)
            if producer.open_requests >= window:
                sender.settle(at_most_open=window // 2)
        sender.finish()
    return sender.summary()


class _Sender:
    """Sends items and counts the results, which come in the same order."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._started = time.monotonic()
        self._open: deque[tuple[Item, int]] = deque()  # and which attempt each is
        self._busy: list[tuple[Item, int]] = []
        self._submitted_messages = self._messages = self._bytes = 0
        self._warned: Counter[int] = Counter()
        self._refused: Counter[int] = Counter()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started

    def send(self, item: Item) -> None:
        self._submit(item, 1)
        self._submitted_messages += _messages_in(item)

    def settle(self, *, at_most_open: int) -> None:
        """Wait until at most `at_most_open` requests lack their answer, and send again those refused as busy."""
        for result in self._producer.results(at_most_open=at_most_open):
            self._count(*self._open.popleft(), result)
        if self._busy:
            time.sleep(_BUSY_PAUSE_S)
            again, self._busy = self._busy, []
            for item, attempts in again:
                self._submit(item, attempts)

    def hold_back(self, rate_per_s: float) -> None:
        """If sending is ahead of the rate, settle what is pending and sleep for the rest of the time."""
        if self._submitted_messages / rate_per_s - self.seconds < _WORTH_SLEEPING_S:
            return
        self.settle(at_most_open=0)
        time.sleep(max(self._submitted_messages / rate_per_s - self.seconds, 0))

    def finish(self) -> None:
        while self._open:
            self.settle(at_most_open=0)

    def summary(self) -> WorkloadSummary:
        return WorkloadSummary(
            messages=self._messages,
            warned=dict(self._warned),
            bytes=self._bytes,
            seconds=self.seconds,
            refused=dict(self._refused),
        )

    def _submit(self, item: Item, attempts: int) -> None:
        self._producer.submit(item)
        self._open.append((item, attempts))

    def _count(self, item: Item, attempts: int, result: SendResult) -> None:
        if result.is_stored:
            self._messages += _messages_in(item)
            self._bytes += _body_bytes(item)
            if result.code != ResponseCode.SUCCESS:
                self._warned[result.code] += _messages_in(item)
        elif result.code == ResponseCode.SYSTEM_BUSY and attempts < MAX_ATTEMPTS:
            self._busy.append((item, attempts + 1))
        else:
            self._refused[result.code] += _messages_in(item)


def _messages_in(item: Item) -> int:
    return len(item.messages) if isinstance(item, MessageBatch) else 1


def _body_bytes(item: Item) -> int:
    return sum(len(message.body) for message in item.messages) if isinstance(item, MessageBatch) else len(item.body)


def _limited(items: Iterable[Item], count: int | None) -> Iterator[Item]:
    """Yield `items` up to `count` messages, cutting the last batch if necessary."""
    left = count
    for item in items:
        if left is None:
            yield item
            continue
        if left <= 0:
            return
        if isinstance(item, MessageBatch):
            item = MessageBatch(item.messages[:left])
        yield item
        left -= _messages_in(item)
