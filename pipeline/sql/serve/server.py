"""``logtwin sql --serve``: a server with a warm session for the clients of its owner (`pipeline.sql.serve.client`).

The clients are ``logtwin sql`` and ``logtwin report``.

Each request gets a session of its own, so that nobody else sees its SETs and temporary views. The tables and views that
it names are looked up and registered again for each request, which takes a tenth of a second: so it sees what a new
process would see. A few requests are answered at the same time; the others wait.
"""

from __future__ import annotations

import fcntl
import io
import os
import socket
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Final, cast, get_args

from pyspark.sql import SparkSession

from pipeline.config import configuration
from pipeline.report.run import made_report
from pipeline.sql.output import Format
from pipeline.sql.reader import Reader, run_text
from pipeline.sql.serve.meeting import (
    DONE,
    NOTE,
    OUTPUT,
    REPORT,
    Ask,
    ClientFrame,
    Hello,
    error_message,
    make_folder,
    next_message,
    socket_path,
)
from pipeline.system.console import spark_ended
from pipeline.system.peers import peer_is_owner
from pipeline.version import own_version
from sources.errors import ConfigurationError, LogtwinError, of_log

WARM_UP: Final = "SELECT count(*) FROM log; SELECT count(*) FROM messages"
"""Run before any request: the first query of a session takes ten times as long as later ones."""
_AT_ONCE: Final = 4
_LOOK_AGAIN_S: Final = 0.2
_ASK_WITHIN_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 16
_LAST_WORDS_WITHIN_S: Final = 10.0


class SQLServer:
    """Answers requests about one `warehouse` on one socket, in new sessions of `spark`, until it is asked to stop."""

    def __init__(self, spark: SparkSession, warehouse: str, listening: socket.socket) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._listening = listening
        self._hello = Hello(own_version(), os.getpid(), str(Path.cwd()))
        self._stopping = threading.Event()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._open: dict[socket.socket, threading.Thread] = {}

    def request_stop(self) -> None:
        """Ask `run` to end. From any thread or a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Answer until asked to stop, then stop what still runs. Raises ReplicaError if Spark has ended."""
        self._listening.settimeout(_LOOK_AGAIN_S)
        while not self._stopping.is_set():
            self._check_spark()
            with suppress(TimeoutError):
                connection, _ = self._listening.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._open[connection] = thread
                thread.start()
        for connection, thread in list(self._open.items()):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(_LAST_WORDS_WITHIN_S)

    def _check_spark(self) -> None:
        gateway = self._spark.sparkContext._gateway
        java = None if gateway is None else gateway.proc
        if java is not None and java.poll() is not None:
            raise spark_ended(java.poll())

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, ValueError), connection:  # the client went away, or does not speak the protocol
                if peer_is_owner(connection):
                    self._talk(connection)
        finally:
            self._open.pop(connection, None)

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(_ASK_WITHIN_S)
        connection.sendall(self._hello.message().encoded())
        with connection.makefile("rb") as stream:
            ask = Ask.read(next_message(stream))
        connection.settimeout(None)
        client = _Client(connection)
        with self._free, client.watched():
            last = ClientFrame(DONE)
            try:
                self._answer(ask, client)
            except LogtwinError as error:
                last = error_message(error)
            except OSError:
                raise  # the client went away
            except Exception as error:  # noqa: BLE001 - a defect, which a process of its own would report, too
                last = error_message(of_log(error, None))
            connection.sendall(last.encoded())

    def _answer(self, ask: Ask, client: _Client) -> None:
        if ask.form not in (*get_args(Format), REPORT):
            raise ValueError(ask.form)
        theirs = configuration.parse(tomllib.loads(ask.config), where=ask.where)
        config = theirs.model_copy(update={"warehouse": self._warehouse})  # theirs may be relative to another folder
        if ask.form == REPORT:
            made = made_report(config.with_logs(ask.where), lambda _: client.stops(self._spark.newSession()))
            with client.sink() as sink:
                sink.write(made)
            return
        reader = Reader.over(self._spark, config, None, ask.text)
        client.stops(reader.spark)
        with client.sink() as sink:
            run_text(reader, ask.text, cast(Format, ask.form), sink, ask.width, client.note)


class _Client:
    """The client at the other end of `connection`. Sending raises OSError if it went away."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._done = threading.Event()
        self._session: SparkSession | None = None

    def note(self, line: str) -> None:
        self._send(NOTE, line.encode())

    @contextmanager
    def sink(self) -> Iterator[BinaryIO]:
        """A binary stream whose content is sent in pieces; the rest goes out at the end."""
        buffered = io.BufferedWriter(cast(io.RawIOBase, _Pieces(self._send)), _CHUNK_BYTES)
        try:
            yield buffered
        finally:
            with suppress(OSError):
                buffered.close()

    def stops(self, session: SparkSession) -> SparkSession:
        """Stop what runs in `session` if the client goes away. Returns the session."""
        self._session = session
        return session

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the client in this context: if it goes away, what runs for it is interrupted.

        A client sends nothing after its request, so the end of the stream means that it is gone.
        """
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._done.set()
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RD)  # wakes the watch
            watch.join()

    def _watch(self) -> None:
        with suppress(OSError):
            while self._connection.recv(1):
                pass
        while not self._done.wait(_LOOK_AGAIN_S):  # repeatedly, because a job may start right after
            if self._session is not None:
                self._session.interruptAll()

    def _send(self, kind: bytes, body: bytes) -> None:
        self._connection.sendall(ClientFrame(kind, body).encoded())


class _Pieces(io.RawIOBase):
    def __init__(self, send: Callable[[bytes, bytes], None]) -> None:
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._send(OUTPUT, bytes(data))
        return len(data)


@contextmanager
def reserved(config_file: Path) -> Iterator[Path]:
    """The path where the server for that configuration is to listen, locked during the context.

    Raises ConfigurationError if there is a server already, or others can reach the path.
    """
    path = socket_path(tomllib.loads(config_file.read_text(encoding="utf-8")))
    make_folder(path.parent)
    with _lock_file(path.with_suffix(".lock")) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                "this replica is served already",
                expected="one logtwin sql --serve",
                found=f"process {lock.read().strip() or 'unknown'}",
                hint="logtwin sql -e finds it by itself; SIGTERM ends it.",
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        path.unlink(missing_ok=True)  # left by a killed server: a live one would hold the lock
        yield path


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A listening socket at `path`, for its owner alone, removed at the end."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen()
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _lock_file(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")
