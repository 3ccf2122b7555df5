"""Acknowledges to a master over one HA connection that stays open as long as the job runs.

A thread owns the socket. The job leaves the committed offset in `acknowledge` and goes on; the thread reports it at
once, repeats it every few seconds (a master closes what it has not heard from for 20 s), and connects anew, for ever,
when the connection breaks. What holds at every moment:

    reported <= acknowledged by the job <= committed in the replica

and of one connection the reports never fall. Since a first report counts as a promise too, a new connection starts
with the last acknowledged offset, after the master's own maximum was found not to lie below it: a master that lost
its tail must not take the promise for bytes that it has written since. Nothing is reported below 1: a report of 0
promises nothing and asks for the last file.

The master streams its log to whoever reports. Here nobody reads it: the receive buffer is small, fills up, and stays
so; brokers of 4.9.7 and 5.5.0 honour the reports of such a connection within 40 ms. Because a full buffer hides the
end of the stream, a broken connection is noticed by poll(2) or, at the latest, by the heartbeat after the next.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sources.errors import AboveMaximum, LogtwinError
from sources.offsets import LogId, Offset
from sources.rocketmq.address import Address
from sources.rocketmq.client import connect
from sources.rocketmq.ha import encode_report

RECEIVE_BUFFER_BYTES: Final = 4096
_PEER_GONE: Final = select.POLLERR | select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # POLLRDHUP is Linux's
_FIRST_WAIT_S: Final = 0.1
_GOODBYE_S: Final = 1.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionState:
    """How the session stands. `connected_since` is None without a connection; `last_error` stays after it healed."""

    acknowledged: Offset | None
    connected_since: datetime | None
    reconnects: int
    last_error: str | None


class HASession:
    """`sources.master.Session` over HA. Connects at the first acknowledgement above 0, in the background.

    `maximum` asks the master for the end of its log, at each new connection; it may raise LogtwinError.
    """

    def __init__(
        self,
        master: Address,
        log_id: LogId,
        *,
        maximum: Callable[[], Offset],
        heartbeat_interval_s: float = 5.0,
        longest_wait_s: float = 5.0,
        connect_timeout_ms: int = 5000,
    ) -> None:
        self._master = master
        self._log_id = log_id
        self._maximum = maximum
        self._heartbeat_interval_s = heartbeat_interval_s
        self._longest_wait_s = longest_wait_s
        self._connect_timeout_ms = connect_timeout_ms
        self._lock = threading.Lock()  # guards the facts below; held for assignments only
        self._acknowledged: Offset | None = None
        self._connected_since: datetime | None = None
        self._connections = 0
        self._last_error: str | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)

    @property
    def acknowledged(self) -> Offset | None:
        return self._acknowledged

    @property
    def state(self) -> SessionState:
        with self._lock:
            reconnects = max(self._connections - 1, 0)
            return SessionState(self._acknowledged, self._connected_since, reconnects, self._last_error)

    def acknowledge(self, committed: Offset) -> None:
        """Raises ValueError where `committed` lies below an earlier one, or after `close`."""
        with self._lock:
            if self._closing.is_set():
                raise ValueError(f"{self._log_id}: acknowledging {committed} to a closed session")
            if self._acknowledged is not None and committed < self._acknowledged:
                raise ValueError(f"{self._log_id}: acknowledging {committed} after {self._acknowledged}")
            self._acknowledged = committed
            if self._thread is None and committed > 0:
                self._thread = threading.Thread(target=self._run, name=f"acknowledge {self._log_id}", daemon=True)
                self._thread.start()
        self._wake_up()

    def close(self) -> None:
        """Reports the last acknowledgement if the master can be reached at the first attempt, and ends the thread.

        Takes at most the connect timeout and two seconds; a thread that hangs longer ends with the process.
        """
        with self._lock:
            self._closing.set()
            thread = self._thread
        self._wake_up()
        if thread is None:
            self._end()
        else:
            thread.join(self._connect_timeout_ms / 1000 + 2 * _GOODBYE_S)

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake already; closed: it has ended
            self._wake.send(b"\0")

    def _end(self) -> None:
        with self._lock:
            self._connected_since = None
        self._wake.close()
        self._woken.close()

    # What follows runs in the thread.

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            is_last_attempt = self._closing.is_set()
            started = time.monotonic()
            try:
                self._connect_and_serve()
                break
            except (LogtwinError, OSError) as error:
                self._note_failure(error)
            if is_last_attempt:
                break
            if time.monotonic() - started > self._longest_wait_s:  # it was a connection, not an attempt at one
                wait_s = _FIRST_WAIT_S
            self._closing.wait(wait_s)
            wait_s = min(2 * wait_s, self._longest_wait_s)
        self._end()

    def _connect_and_serve(self) -> None:
        """Returns when the session is closed and everything is reported; raises when the connection breaks."""
        sock = connect(self._master, timeout_ms=self._connect_timeout_ms, receive_buffer_bytes=RECEIVE_BUFFER_BYTES)
        with sock:
            self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        promise = _Promise(self._maximum)
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        poller.register(sock, _PEER_GONE)
        heartbeat_at = time.monotonic()
        while True:
            is_closing = self._closing.is_set()  # looked at before the offset, which no longer changes once it is set
            offset = self._acknowledged or Offset(0)
            if promise.is_new(offset) or time.monotonic() >= heartbeat_at:
                report = encode_report(promise.checked(offset))
                self._note_connected()
                sock.sendall(report)
                heartbeat_at = time.monotonic() + self._heartbeat_interval_s
            if is_closing:
                _say_goodbye(sock)
                return
            wait_ms = max(heartbeat_at - time.monotonic(), 0) * 1000
            if self._peer_is_gone(poller.poll(wait_ms), sock):
                raise ConnectionResetError("the master closed the connection")

    def _peer_is_gone(self, events: list[tuple[int, int]], sock: socket.socket) -> bool:
        """Swallows what woke the thread up."""
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        return any(descriptor == sock.fileno() for descriptor, _ in events)

    def _note_connected(self) -> None:
        with self._lock:
            if self._connected_since is None:
                self._connected_since = datetime.now(UTC)
                self._connections += 1

    def _note_failure(self, error: LogtwinError | OSError) -> None:
        with self._lock:
            is_news = self._connected_since is not None or self._last_error != str(error)
            self._connected_since = None
            self._last_error = str(error)
        level = logging.WARNING if is_news else logging.DEBUG
        _logger.log(level, "%s: acknowledging to %s failed, trying on: %s", self._log_id, self._master, error)


class _Promise:
    """Guards one connection against promising a master more than it holds.

    The first report of a connection is checked, and the first one that differs from it: its bytes may have been read
    before the connection broke, from the master as it was then. Everything acknowledged later was read after that,
    from the master as it is now, because a job reads a batch after it has acknowledged the one before.
    """

    def __init__(self, maximum: Callable[[], Offset]) -> None:
        self._maximum = maximum
        self._unchecked = 2
        self._last: Offset | None = None

    def is_new(self, offset: Offset) -> bool:
        return offset != self._last

    def checked(self, offset: Offset) -> Offset:
        """`offset`. Raises AboveMaximum, or what asking the master raises."""
        if self.is_new(offset) and self._unchecked:
            self._check(offset)
            self._unchecked -= 1
        self._last = offset
        return offset

    def _check(self, offset: Offset) -> None:
        maximum = self._maximum()
        if offset > maximum:
            raise AboveMaximum(
                "the master's log ends below what the replica has committed; nothing is acknowledged to it",
                offset=offset,
                expected=f"a log that ends at {offset} or above",
                found=f"one that ends at {maximum}",
                hint="The master lost its tail or is another one: compare its log with the replica before going on.",
            )


def _say_goodbye(sock: socket.socket) -> None:
    """Ends the stream after the last report, and lets the master end it too.

    Closing with received bytes unread would reset the connection, and the master might not get to read the report.
    """
    sock.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + _GOODBYE_S
    with contextlib.suppress(TimeoutError):
        while (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            if not sock.recv(64 * 1024):
                return
