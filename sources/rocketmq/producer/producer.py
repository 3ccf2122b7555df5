"""A producer that sends messages to a broker, real or embedded, many at a time over one connection.

Requests are pipelined: up to `window` of them are sent before the first answer must have come. Answers are matched by
their opaque, because a broker works on several requests at once and answers in any order.
"""

from __future__ import annotations

import selectors
import ssl
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sources.access.address import Address
from sources.errors import MasterSilent, MasterUnreachable, ProtocolViolation
from sources.rocketmq.format import properties
from sources.rocketmq.format.commitlog import BatchItem, encode_items
from sources.rocketmq.wire.connection import NO_SECURITY, RemotingConnection
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, encode_command
from sources.rocketmq.wire.security import RemotingSecurity
from sources.rocketmq.wire.send_header import SendHeader, encode_send_header

GROUP: Final = "logtwin"
RECEIVE_BYTES: Final = 256 * 1024
LOT_BYTES: Final = 64 * 1024
"""Requests are handed to the socket in lots of about this size."""

DEFAULT_WINDOW: Final = 128
"""A larger window is not faster, and a real broker refuses requests that waited in its queue for 200 ms."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send. `body` is what the broker stores, compressed if `sys_flag` says so.

    `queue_id` −1 lets the broker choose; the broker creates an unknown topic with `queues` queues.
    """

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    queue_id: int = -1
    flag: int = 0
    sys_flag: int = 0
    queues: int = 4


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages of one topic and queue that travel and are stored together; at least one."""

    messages: tuple[OutgoingMessage, ...]


@dataclass(frozen=True, slots=True)
class SendResult:
    """A broker's answer. For a batch: the message ids joined by commas, the queue offset of the first message."""

    code: int
    remark: str | None
    msg_id: str
    queue_id: int
    queue_offset: int

    @property
    def is_stored(self) -> bool:
        """Whether the message is stored. Codes 10 to 12 mean that, too, with a warning about flush or replicas."""
        return self.code in _STORED


_STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)


_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a ready socket may still raise, because TLS moves whole records, and messages of its own."""


@dataclass(slots=True)
class _Open:
    """A pending request: its code, and its answer once that has come."""

    code: int
    answer: Command | None = None


class Producer(RemotingConnection):
    """One connection to a broker's normal port. For one thread.

    Raises MasterUnreachable if the connection cannot be made or breaks, MasterSilent without an answer in time,
    AccessDenied, ProtocolViolation. Any other refusal is a SendResult with the broker's code, not an exception.
    """

    def __init__(
        self,
        address: Address,
        *,
        window: int = DEFAULT_WINDOW,
        answer_timeout_ms: int = 10_000,
        security: RemotingSecurity = NO_SECURITY,
    ) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} requests")
        super().__init__(address, security=security)
        self._window = window
        self._answer_timeout_s = answer_timeout_ms / 1000
        self._unsent = bytearray()
        self._open: dict[int, _Open] = {}  # by opaque, in the order of the requests
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)

    def close(self) -> None:
        self._selector.close()
        super().close()

    @property
    def open_requests(self) -> int:
        """The number of requests without a result."""
        return len(self._open)

    def send(self, item: OutgoingMessage | MessageBatch) -> SendResult:
        (result,) = self.send_all([item])
        return result

    def send_all(self, items: Iterable[OutgoingMessage | MessageBatch]) -> Iterator[SendResult]:
        """Send `items` as fast as they come, and yield the results in the same order.

        Results come a window later than their items, so take them all; `flush` in between yields what is outstanding.
        """
        for item in items:
            self.submit(item)
            if self.open_requests >= self._window:
                yield from self.results(at_most_open=self._window // 2)  # else items would go out one by one
        yield from self.flush()

    def submit(self, item: OutgoingMessage | MessageBatch) -> None:
        """Send a request; its result comes from `results` or `flush`."""
        request = self._ready(_request(item))
        self._open[request.opaque] = _Open(request.code)
        self._unsent += encode_command(request)
        if len(self._unsent) >= LOT_BYTES:
            self._push()

    def flush(self) -> Iterator[SendResult]:
        """Yield the results of everything submitted, in order; waits for the last of them."""
        return self.results(at_most_open=0)

    def results(self, *, at_most_open: int) -> Iterator[SendResult]:
        """Yield results in order, until at most `at_most_open` requests lack theirs."""
        while len(self._open) > at_most_open:
            self._push()
            opaque, sent = next(iter(self._open.items()))
            while sent.answer is None:
                self._wait(selectors.EVENT_READ, "answer")
                self._receive()
            del self._open[opaque]
            yield _result(self._allowed(sent.code, sent.answer))

    def _push(self) -> None:
        """Send what is waiting. Meanwhile take answers in, so that the two sides do not wait for each other to read."""
        while self._unsent:
            events = self._wait(selectors.EVENT_READ | selectors.EVENT_WRITE, "take")
            if events & selectors.EVENT_READ:
                self._receive()
            if events & selectors.EVENT_WRITE:
                self._send()

    def _send(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except _NOT_NOW:
            return
        except OSError as error:
            raise self._failed(error) from error

    def _wait(self, events: int, what: str) -> int:
        """Return which of `events` the socket is ready for."""
        self._selector.modify(self._socket, events)
        ready = self._selector.select(self._answer_timeout_s)
        if not ready:
            raise MasterSilent(
                f"the broker at {self.address} does not {what} what is sent",
                expected=f"that within {self._answer_timeout_s:g} s",
                found=f"{len(self._open)} requests without an answer",
                hint="See how busy the broker is; what was sent may be stored all the same.",
            )
        return ready[0][1]

    def _receive(self) -> None:
        """Sort the answers that have come; the socket is readable. A TLS record is smaller, so it is taken whole."""
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except _NOT_NOW:
            return
        except OSError as error:
            raise self._failed(error) from error
        if not data:
            raise self._broken("closed by the broker")
        for command in self._frames.feed(data):
            if command.is_response and command.opaque in self._open:
                self._open[command.opaque].answer = command

    def _broken(self, cause: object) -> MasterUnreachable:
        return MasterUnreachable(
            f"the connection to the broker at {self.address} broke",
            found=cause,
            hint=f"{len(self._open)} requests had no answer yet; what was sent may be stored all the same. Does the "
            "broker want TLS (tls = true)?",
        )


def _request(item: OutgoingMessage | MessageBatch) -> Command:
    if isinstance(item, MessageBatch):
        code, first, block = RequestCode.SEND_BATCH_MESSAGE, item.messages[0], ""
        body = encode_items(BatchItem(one.flag, one.body, properties.encode(one.properties)) for one in item.messages)
    else:
        code, first, body = RequestCode.SEND_MESSAGE_V2, item, item.body
        block = properties.encode(first.properties).decode()
    header = SendHeader(
        producer_group=GROUP,
        topic=first.topic,
        default_topic_queue_nums=first.queues,
        queue_id=first.queue_id,
        sys_flag=first.sys_flag,
        born_timestamp_ms=time.time_ns() // 1_000_000,
        flag=first.flag,
        properties=block,
        batch=isinstance(item, MessageBatch),
    )
    return Command(code, ext_fields=encode_send_header(header, code), body=body, language="PYTHON")


def _result(answer: Command) -> SendResult:
    fields = answer.ext_fields
    try:
        return SendResult(
            code=answer.code,
            remark=answer.remark,
            msg_id=fields.get("msgId", ""),
            queue_id=int(fields.get("queueId", -1)),
            queue_offset=int(fields.get("queueOffset", -1)),
        )
    except ValueError as error:
        raise ProtocolViolation("not an answer to a send request", expected="numbers", found=fields) from error
