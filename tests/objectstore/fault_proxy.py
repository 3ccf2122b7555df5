"""A proxy on loopback between a client and an S3 server: it counts requests, and meets some of them with a fault.

What must hold: without a fault every byte of a body passes as it is, in either direction, however large, and both ends
keep their connections. A request is in the log before its answer begins.

It lives in threads of ours. So who asks must not hold the interpreter's lock meanwhile: pyarrow does where a stream is
left to the collector instead of being closed, and then waits for itself until its time is up.
"""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Self

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
from tests.objectstore.s3_requests import Request, RequestLog, Seen, When, any_request, request_of


class FaultProxy:
    """Forwards to `target`, a port of loopback, as long as the `with` lasts.

    `credentials` may be exchanged at any time: they are the ones that have not expired. None lets everyone through.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.credentials: Credentials | None = None
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._logs: list[RequestLog] = []
        self._is_ended = threading.Event()
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_ended.set()
        self._server.shutdown()
        self._server.end()
        self._thread.join()

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


class _Server(ThreadingTCPServer):
    """A thread for each client's connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Link)
        self.proxy = proxy
        self.clients: set[socket.socket] = set()

    def end(self) -> None:
        """Nobody can connect any more, and whoever is connected hears of it."""
        self.server_close()
        for client in list(self.clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError | HTTPException):  # an end is gone in the middle of a message
            super().handle_error(request, client_address)


class _Link(BaseHTTPRequestHandler):
    """A client's connection, and one to the server, made when it is first needed."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.clients.add(self.connection)
        self._to_server = HTTPConnection("127.0.0.1", self.server.proxy.target)

    def finish(self) -> None:
        self.server.clients.discard(self.connection)
        self._to_server.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        """The tests have a log of their own."""

    def handle_expect_100(self) -> bool:
        """Not before it is known whether it is cut."""
        return True

    def _serve(self) -> None:
        headers = self.headers.items()
        seen = self.server.proxy.begin(request_of(self.command, self.path, dict(headers)))
        fault = seen.fault
        if isinstance(fault, CutBefore):
            self.close_connection = True
            return
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self._body()
        if isinstance(fault, Answer):
            told = fault.body(seen.request)
            length = ("Content-Length", str(len(told)))
            self._say(seen, fault.status, [("Content-Type", "application/xml"), length, *fault.headers], told)
            return
        if isinstance(fault, Held):
            self.server.proxy.wait(fault.seconds)
        if isinstance(fault, Unconditional):
            headers = [pair for pair in headers if pair[0].lower() != "if-none-match"]
        self._answer(seen, self._asked(headers, body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _body(self) -> bytes:
        """All of it. Raises ConnectionError where the client breaks off."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self._read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            pieces.append(self._read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(pieces)

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionResetError("the client broke off")
        return data

    def _asked(self, headers: list[tuple[str, str]], body: bytes) -> HTTPResponse:
        self._to_server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            if name.lower() not in ("expect", "transfer-encoding", "content-length"):
                self._to_server.putheader(name, value)
        if body or self.command in ("PUT", "POST"):
            self._to_server.putheader("Content-Length", str(len(body)))
        self._to_server.endheaders(body)
        return self._to_server.getresponse()

    def _answer(self, seen: Seen, answer: HTTPResponse) -> None:
        """The server's answer, to the client, as far as the fault lets it pass."""
        fault, body = seen.fault, answer.read()
        if isinstance(fault, CutAfter):
            self.close_connection = True
            return
        if isinstance(fault, Late):
            self.server.proxy.wait(fault.seconds)
        headers = [pair for pair in answer.getheaders() if pair[0].lower() != "transfer-encoding"]
        if answer.headers.get("Transfer-Encoding"):
            headers.append(("Content-Length", str(len(body))))
        is_cut = isinstance(fault, CutWithinAnswer) and len(body) > fault.after_bytes
        self._say(
            seen, answer.status, headers, body[: fault.after_bytes] if isinstance(fault, CutWithinAnswer) else body
        )
        self.close_connection |= is_cut or answer.will_close

    def _say(self, seen: Seen, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        seen.status = status
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
