"""Masters that do what a test tells them: a script a connection, on a free port of loopback.

An HA script is a function of one `SlaveConnection`: it waits for reports, sends what it likes, and returns to close.
Connections beyond the last script get the last one again. A remoting script answers one request.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from sources.access.address import Address
from sources.offsets import Offset
from sources.rocketmq.wire.ha import ReportParser, encode_frame
from sources.rocketmq.wire.remoting import Command, FrameBuffer, RequestCode, decode_command, encode_command

PATIENCE_S = 60.0
"""How long a script waits for what must come; only a failing test waits that long."""


class Server:
    """Accepts on loopback; each connection is served by a thread of its own. A context manager."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    @property
    def accepted(self) -> int:
        return len(self._sockets)

    def hang_up(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                sock, _ = self._listener.accept()
                self._sockets.append(sock)
                self._start(self._serve_and_close, sock)

    def _start(self, target: Callable[[socket.socket], None], sock: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(sock,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve_and_close(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            self.serve(sock)
            sock.shutdown(socket.SHUT_RDWR)

    def serve(self, sock: socket.socket) -> None:
        raise NotImplementedError


class SlaveConnection:
    """The master's end of one HA connection. `reports` holds all that came."""

    def __init__(self, sock: socket.socket) -> None:
        self.reports: list[Offset] = []
        self._sock = sock
        self._changed = threading.Condition()
        self._ended = False

    def read_reports(self) -> None:
        """Until the slave leaves; runs in a thread of its own."""
        parser = ReportParser()
        with contextlib.suppress(OSError):
            while data := self._sock.recv(4096):
                with self._changed:
                    self.reports += parser.feed(data)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def await_reports(self, count: int = 1) -> list[Offset]:
        """The reports so far, as soon as there are `count`; raises OSError where the slave leaves before."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.reports) >= count or self._ended, PATIENCE_S)
            if len(self.reports) < count:
                raise ConnectionError(f"{len(self.reports)} reports came")
            return list(self.reports)

    def await_report_of(self, offset: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: offset in self.reports, PATIENCE_S), self.reports

    def has_ended(self) -> bool:
        with self._changed:
            return self._ended

    def await_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended, PATIENCE_S)

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def reset(self) -> None:
        """End the connection with a RST, as a killed master does. It goes out once nobody waits for bytes any more."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):  # the slave was quicker
            self._sock.shutdown(socket.SHUT_RD)
        self._sock.close()

    def send_bytewise(self, data: bytes) -> None:
        for at in range(len(data)):
            self._sock.sendall(data[at : at + 1])


HAScript = Callable[[SlaveConnection], None]


class ScriptedMaster(Server):
    """The HA port of a master."""

    def __init__(self, *scripts: HAScript) -> None:
        super().__init__()
        self._scripts = scripts
        self._changed = threading.Condition()
        self.connections: list[SlaveConnection] = []

    @property
    def reports(self) -> list[Offset]:
        return [report for connection in self.connections for report in connection.reports]

    def await_connection(self, count: int) -> SlaveConnection:
        """The `count`-th connection, from 1."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.connections) >= count, PATIENCE_S)
            return self.connections[count - 1]

    def serve(self, sock: socket.socket) -> None:
        connection = SlaveConnection(sock)
        with self._changed:
            script = self._scripts[min(len(self.connections), len(self._scripts) - 1)]
            self.connections.append(connection)
            self._changed.notify_all()
        self._start(lambda _: connection.read_reports(), sock)
        script(connection)


def serve_log(
    log: bytes, *, first_offset: int = 0, frame_bytes: int = 32 * 1024, stop_after: int | None = None
) -> HAScript:
    """A master's ordinary behaviour over `log`: from the first report on, in frames, then nothing more.

    With `stop_after` it closes the connection after that many bytes of its stream, heads included.
    """

    def script(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        stream = b"".join(
            encode_frame(Offset(at), log[at - first_offset : at - first_offset + frame_bytes])
            for at in range(start, first_offset + len(log), frame_bytes)
        )
        connection.send(stream[:stop_after])
        if stop_after is None:
            connection.await_end()

    return script


def after_the_report(data: bytes) -> HAScript:
    """Sends `data`, whatever was asked for, and stays."""

    def script(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(data)
        connection.await_end()

    return script


class ScriptedBroker(Server):
    """The normal port of a broker: `answer` turns a request into whole frames to send, b"" for none.

    An OSError that it raises ends the connection.
    """

    def __init__(self, answer: Callable[[Command], bytes], port: int = 0) -> None:
        super().__init__(port)
        self._answer = answer
        self.requests: list[Command] = []

    def serve(self, sock: socket.socket) -> None:
        frames = FrameBuffer()
        while data := sock.recv(4096):
            for request in frames.feed(data):
                self.requests.append(request)
                sock.sendall(self._answer(request))


def answer_as(response: bytes) -> Callable[[Command], bytes]:
    """Every request is answered with this whole frame, under the request's opaque."""
    command = decode_command(response)
    return lambda request: encode_command(replace(command, opaque=request.opaque))


def holding(start: int, end: int, **config: object) -> Callable[[Command], bytes]:
    """A broker whose commit log is `[start, end)`, as runtime info (28) says it; with `config`, request 26 too."""
    info = f'{{"table":{{"commitLogMinOffset":"{start}","commitLogMaxOffset":"{end}"}}}}'
    words = "".join(f"{name}={value}\n" for name, value in config.items())

    def answer(request: Command) -> bytes:
        body = words if config and request.code == RequestCode.GET_BROKER_CONFIG else info
        return encode_command(request.response(0, body=body.encode()))

    return answer
