"""A proxy on loopback between a client and an S3 server: it counts requests, and meets some of them with a fault.

What must hold: without a fault every byte of a body passes as it is, in either direction, however large, and both ends
keep their connections. A request is in the log before its answer begins.

It lives in threads of ours. So who asks must not hold the interpreter's lock meanwhile: pyarrow does where a stream is
left to the collector instead of being closed, and then waits for itself until its time is up.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Self

from tests.objectstore.faults import (
    EXPIRED_TOKEN,
    Answer,
    Credentials,
    CutAfter,
    CutBefore,
    CutWithinAnswer,
    Fault,
    Held,
    Late,
    Rule,
    Unconditional,
)
from tests.objectstore.http_wire import UNLIMITED, Head, answer_head, has_body, pass_body, read_head
from tests.objectstore.s3_requests import Request, RequestLog, Seen, When, any_request, request_of

_JOIN_TIMEOUT_S = 10.0


class FaultProxy:
    """Forwards to `target`, a port of loopback, as long as the `with` lasts.

    `credentials` may be exchanged at any time: they are the ones that have not expired. None lets everyone through.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.credentials: Credentials | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._logs: list[RequestLog] = []
        self._links: set[_Link] = set()
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_ended.set()
        _shut(self._listener)
        self._thread.join(_JOIN_TIMEOUT_S)
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.end()
        for link in links:
            link.join(_JOIN_TIMEOUT_S)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def counted(self) -> Iterator[RequestLog]:
        log = RequestLog()
        with self._lock:
            self._logs.append(log)
        try:
            yield log
        finally:
            with self._lock:
                self._logs = [other for other in self._logs if other is not log]

    def inject(self, fault: Fault, when: When = any_request, *, times: int | None = None) -> Rule:
        """From now on, until it has happened so many times, or `heal`. The first rule that fits is taken."""
        rule = Rule(fault, when, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """No fault any more, and all credentials are good."""
        with self._lock:
            self._rules.clear()
        self.credentials = None

    @contextlib.contextmanager
    def faulty(self, fault: Fault, when: When = any_request, *, times: int | None = None) -> Iterator[Rule]:
        """The same while the `with` lasts."""
        rule = self.inject(fault, when, times=times)
        try:
            yield rule
        finally:
            with self._lock:
                self._rules = [other for other in self._rules if other is not rule]

    def begin(self, request: Request) -> Seen:
        """Counts it, and says which fault it meets."""
        with self._lock:
            fault = next((rule.fault for rule in self._rules if rule.meets(request)), None)
            given = Credentials(request.access_key or "", request.session_token)
            if fault is None and self.credentials not in (None, given):
                fault = EXPIRED_TOKEN
            seen = Seen(request, fault=fault)
            for log in self._logs:
                log.all.append(seen)
        return seen

    def wait(self, seconds: float) -> None:
        """As long, or until the proxy ends."""
        self._is_ended.wait(seconds)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                link = _Link(self, client)
                with self._lock:
                    self._links = {other for other in self._links if other.is_alive()} | {link}
                link.start()


class _Link(threading.Thread):
    """A client's connection, and one to the server, made when it is first needed."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._from_server: IO[bytes] | None = None
        self._to_server: IO[bytes] | None = None
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._from_client: IO[bytes] = client.makefile("rb")
        self._to_client: IO[bytes] = client.makefile("wb")

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # an end is gone; what it says is no HTTP
            while (head := read_head(self._from_client)) and self._serve(head):
                pass
        self.end()
        # Only now is the connection closed, and a client that is still sending hears of it: each of these held it.
        for end in (self._from_client, self._to_client, self._from_server, self._to_server, self._client, self._server):
            with contextlib.suppress(OSError):
                if end is not None:
                    end.close()

    def end(self) -> None:
        """No more can be read and sent; a reader that waits hears of it. From any thread."""
        for sock in (self._client, self._server):
            if sock is not None:
                _shut(sock)

    def _serve(self, head: Head) -> bool:
        """One request; whether another may follow on the connection."""
        seen = self._proxy.begin(request_of(head.method, head.target, dict(head.headers)))
        fault = seen.fault
        if isinstance(fault, CutBefore):
            return False
        if head.get("expect").lower() == "100-continue":
            self._to_client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._to_client.flush()
        if isinstance(fault, Answer):
            pass_body(head, self._from_client, BytesIO())
            self._say(head, seen, fault)
            return head.keeps_connection
        if isinstance(fault, Held):
            self._hold(head, fault.seconds)
        else:
            self._send(head.without("expect", *(["if-none-match"] if isinstance(fault, Unconditional) else [])))
        return self._answer(head, seen)

    def _say(self, head: Head, seen: Seen, answer: Answer) -> None:
        body = answer.body(seen.request)
        headers = (("Content-Type", "application/xml"), ("Content-Length", str(len(body))), *answer.headers)
        seen.status = answer.status
        self._to_client.write(answer_head(answer.status, headers).packed())
        if head.method != "HEAD":
            self._to_client.write(body)
        self._to_client.flush()

    def _send(self, head: Head) -> None:
        sink = self._connected()
        sink.write(head.packed())
        pass_body(head, self._from_client, sink)
        sink.flush()

    def _hold(self, head: Head, seconds: float) -> None:
        """The request, all of it, to the server: later."""
        body = BytesIO()
        pass_body(head, self._from_client, body)
        self._proxy.wait(seconds)
        sink = self._connected()
        sink.write(head.without("expect").packed() + body.getvalue())
        sink.flush()

    def _answer(self, head: Head, seen: Seen) -> bool:
        """The server's answer, to the client, as far as the fault lets it pass."""
        if self._from_server is None or (answer := read_head(self._from_server)) is None:
            return False
        carries_body = has_body(head.method, answer)
        fault = seen.fault
        if isinstance(fault, CutAfter):
            return False
        if isinstance(fault, Late):
            self._proxy.wait(fault.seconds)
        seen.status = answer.status
        self._to_client.write(answer.packed())
        most = fault.after_bytes if isinstance(fault, CutWithinAnswer) else UNLIMITED
        if carries_body:
            pass_body(answer, self._from_server, self._to_client, most=most)
        self._to_client.flush()
        return head.keeps_connection and answer.keeps_connection

    def _connected(self) -> IO[bytes]:
        if self._to_server is None:
            self._server = socket.create_connection(("127.0.0.1", self._proxy.target))
            self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._from_server, self._to_server = self._server.makefile("rb"), self._server.makefile("wb")
        return self._to_server


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
