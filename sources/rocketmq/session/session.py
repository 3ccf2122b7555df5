"""Acknowledges to a master over one HA connection that stays open as long as the job runs.

A thread owns the socket. The job leaves the committed offset with `acknowledge` and goes on. The thread reports it at
once, repeats it every few seconds (a master closes a connection that it has not heard from for 20 s), and reconnects
for ever if the connection breaks. What holds at every moment:

    reported (`acknowledged`) <= wanted by the job <= committed in the replica

and the reports of one connection never fall. A first report also counts as a promise. So a new connection starts with
the last acknowledged offset, after the job has proven that the master is the one it read from, and after checking that
the master's own maximum is not below that offset: a master that lost its tail must not take the promise for bytes that
it has written since. Nothing below 1 is reported: a report of 0 promises nothing and asks for the last file.

The master streams its log to whoever reports. A session reads none of it beyond the first head (`FirstHeads`): the
receive buffer is small, fills up, and stays full. Brokers of 4.9.7 and 5.5.0 honour the reports of such a connection
within 40 ms. A full buffer hides the end of the stream, so a broken connection is noticed by poll(2) or, at the latest,
by the heartbeat after the next.

A stalled transfer holds the segment file that it was taken from. When that file was due for deletion, both brokers kept
it and all later files for two minutes, and then unmapped it under the transfer (`destroyMapedFileIntervalForcibly`). So
a connection is replaced after an hour, before its file is old. It ends only after the next one was answered, because
brokers of 4.x tell producers at once that no slave is available.

A master that counts connections would take this one and those of the reading tasks for two replicas: `turns` prevents
that. A pause in which tasks read is not reported as an interruption: `connected_since` goes on, and only a connection
that cannot be made again afterwards counts as a reconnect.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Protocol

from sources.access.address import Address
from sources.access.spread import Spread
from sources.errors import LogtwinError, of_log
from sources.master import Committed, MasterLog, SessionState
from sources.offsets import LogId, Offset
from sources.rocketmq.broker_words import counted_for_s, dialect_of
from sources.rocketmq.session.ha_connection import ENDED, FirstHeads, Promise, connect_slave, say_goodbye
from sources.rocketmq.session.turns import NoTurn, Turns
from sources.rocketmq.wire.ha import DEFAULT_MAX_FRAME_BYTES, Dialect

RECEIVE_BUFFER_BYTES: Final = 4096
_PEER_GONE: Final = select.POLLERR | select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # POLLRDHUP is Linux's
_FIRST_WAIT_S: Final = 0.1
_GOODBYE_S: Final = 1.0
_HAND_OVER_S: Final = 5.0  # an unconfirmed end costs much more
RENEW_AFTER_S: Final = 3600.0  # brokers count the age of files in hours
_CONNECTING: Final = Spread(0.005)  # the sessions of a thousand logs would connect, each with its proof, in one moment

_logger = logging.getLogger(__name__)


class AskedBroker(Protocol):
    """The questions that a session asks its master, anew at each connection. All methods may raise LogtwinError."""

    def ha(self) -> Address:
        """Return the address where it listens for slaves."""

    def maximum(self) -> Offset:
        """Return where its log ends."""

    def config(self) -> Mapping[str, str]:
        """Return its configuration (request 26)."""

    def look_again(self) -> None:
        """Find out anew where it is."""


class HASession:
    """A `sources.master.Session` over HA. It connects in the background, at the first acknowledgement above 0."""

    def __init__(
        self,
        master: AskedBroker,
        log_id: LogId,
        *,
        prove: Callable[[], None] | None = None,
        heartbeat_interval_s: float = 5.0,
        longest_wait_s: float = 5.0,
        renew_after_s: float = RENEW_AFTER_S,
        connect_timeout_ms: int = 5000,
        silence_timeout_ms: int = 20_000,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self._master = master
        self._log_id = log_id
        self._prove = prove
        self._heartbeat_interval_s = heartbeat_interval_s
        self._longest_wait_s = longest_wait_s
        self._renew_after_s = renew_after_s
        self._previous: socket.socket | None = None  # kept until the next connection is there; only the thread uses it
        self._connect_timeout_ms = connect_timeout_ms
        self._silence_timeout_s = silence_timeout_ms / 1000
        self._max_frame_bytes = max_frame_bytes
        self._address: Address | None = None
        self._lock = threading.Lock()  # guards the facts below; held for assignments only
        self._wanted: Offset | None = None
        self._acknowledged: Offset | None = None
        self._connected_since: datetime | None = None
        self._connections = 0
        self._last_error: str | None = None
        self._failure: LogtwinError | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._turns = Turns(self._wake_up)
        self._must_ask = True  # whether the master counts connections
        self._reads_unasked = False  # somebody reads who has no turn
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)

    @property
    def acknowledged(self) -> Mapping[LogId, Offset]:
        return {} if self._acknowledged is None else {self._log_id: self._acknowledged}

    @property
    def failure(self) -> LogtwinError | None:
        """The error that disproved the master at a connection. The session still tries again, until it is closed."""
        return self._failure

    @property
    def state(self) -> SessionState:
        with self._lock:
            reconnects = max(self._connections - 1, 0)
            return SessionState(self._acknowledged, self._connected_since, reconnects, self._last_error)

    def reading(self) -> AbstractContextManager[None]:
        """Implement the contract; if connections take turns, an acknowledgement given inside is reported afterwards.

        If the master is of 4.x, or has `inSyncReplicas` up to 2, the session stays connected: one connection's word is
        enough there, and 4.x would tell producers that no slave is available. Entering raises what asking the master
        raises, and MasterUnreachable after `close`.
        """
        if self._must_ask or self._turns.are_taken:
            return self._in_turn()
        self._reads_unasked = True
        return NoTurn(self._read_unasked)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        self._must_ask = True  # until all has gone well
        counted_s = counted_for_s(self._master.config())
        with self._turns.of_readers(counted_s):
            yield
        self._must_ask = False

    def _read_unasked(self, has_failed: bool) -> None:
        self._reads_unasked = False
        if has_failed:
            self._turns.lose()
            self._must_ask = True

    def reader_of(self, log: MasterLog) -> MasterLog:
        """Implement the contract. A batch that begins without a turn gets none later, even if the session learns
        meanwhile that the broker counts connections: the broker tells each reader so.
        """
        takes_no_turn = self._reads_unasked or not self._turns.are_taken
        return replace(log, takes_no_turn=takes_no_turn)  # type: ignore[type-var] # a RocketMQLog

    def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
        """Leave its log's position to be reported. Raises ValueError below an earlier one, and after `close`."""
        committed = positions[self._log_id].offset
        with self._lock:
            if self._closing.is_set():
                raise ValueError(f"{self._log_id}: acknowledging {committed} to a closed session")
            if self._wanted is not None and committed < self._wanted:
                raise ValueError(f"{self._log_id}: acknowledging {committed} after {self._wanted}")
            self._wanted = committed
            if self._thread is None and committed > 0:
                self._thread = threading.Thread(target=self._run, name=f"acknowledge {self._log_id}", daemon=True)
                self._thread.start()
        self._wake_up()

    def close(self) -> None:
        """Report the last acknowledgement if the master can be reached at the first attempt, and end the thread.

        Takes at most the connect timeout and two seconds; a thread that hangs longer ends with the process.
        """
        with self._lock:
            self._closing.set()
            thread = self._thread
        self._turns.close()
        self._wake_up()
        if thread is None:
            self._end()
        else:
            thread.join(self._connect_timeout_ms / 1000 + 2 * _GOODBYE_S)

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is awake already; closed: it has ended
            self._wake.send(b"\0")

    def _end(self) -> None:
        with self._lock:
            self._connected_since = None
        self._wake.close()
        self._woken.close()

    # The methods below run in the thread.

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while self._turns.await_own():
            is_last_attempt = self._closing.is_set()
            self._closing.wait(_CONNECTING.delay_s())
            started = time.monotonic()
            try:
                is_done = self._connect_and_serve()
            except Exception as failure:  # noqa: BLE001 - if this thread ended, producers would wait, and nobody know why
                self._note_failure(failure)
                is_done = is_last_attempt
                if time.monotonic() - started > self._longest_wait_s:  # it was a connection, not an attempt at one
                    wait_s = _FIRST_WAIT_S
                self._closing.wait(wait_s)
                wait_s = min(2 * wait_s, self._longest_wait_s)
            if is_done:
                break
        self._end_previous(is_last=True)
        self._end()

    def _connect_and_serve(self) -> bool:
        """Serve one connection. Return True once the session is closed and all is reported, False to give up the turn.

        Raises what breaks the connection, and what disproves the master.
        """
        with contextlib.ExitStack() as without_successor:
            without_successor.callback(self._turns.end, is_known=True)  # one that never reported does not count
            without_successor.callback(self._end_previous, is_last=True)
            config = self._master.config()
            self._turns.learn(counted_for_s(config))
            if self._turns.are_taken:  # then the previous one would be counted beside the next
                self._end_previous(is_last=True)
            if not self._prove_in_turn():
                return False
            address, dialect = self._resolve(), dialect_of(config)
            if not self._turns.begin():
                return False
            sock = connect_slave(
                address,
                dialect,
                timeout_ms=self._connect_timeout_ms,
                receive_buffer_bytes=RECEIVE_BUFFER_BYTES,
            )
            without_successor.pop_all()
        is_known = False
        try:
            return self._serve(sock, dialect)
        except ENDED:
            is_known = True
            raise
        finally:
            if sock is not self._previous:
                self._end_previous()
                self._end_connection(sock, is_known=is_known)

    def _end_connection(self, sock: socket.socket, *, is_known: bool) -> None:
        within_s = _HAND_OVER_S if self._turns.are_readers else _GOODBYE_S
        with sock:
            self._turns.end(is_known=is_known or say_goodbye(sock, within_s=within_s))

    def _end_previous(self, *, is_last: bool = False) -> None:
        """End the previous connection, if there still is one. Its successor keeps the turn, unless it `is_last`."""
        previous, self._previous = self._previous, None
        if previous is None:
            return
        if is_last:
            self._end_connection(previous, is_known=False)
            return
        with previous:
            say_goodbye(previous, within_s=_GOODBYE_S)

    def _prove_in_turn(self) -> bool:
        """Prove the master, which may take a connection and a turn of its own. Return False if it is not our turn."""
        if self._prove is None:
            return True
        if self._previous is not None:  # its turn goes on
            self._prove_master(self._prove)
            return True
        if not self._turns.begin():
            return False
        is_known = False
        try:
            self._prove_master(self._prove)
            is_known = True
        finally:
            self._turns.end(is_known=is_known)
        return True

    def _prove_master(self, prove: Callable[[], None]) -> None:
        try:
            prove()
        except LogtwinError as error:
            if not error.is_transient:
                self._failure = error
            raise

    def _resolve(self) -> Address:
        address = self._master.ha()
        if self._address is not None and address != self._address:
            _logger.info("%s: the master is at %s now, no longer at %s", self._log_id, address, self._address)
        self._address = address
        return address

    def _serve(self, sock: socket.socket, dialect: Dialect) -> bool:
        promise = Promise(self._master.maximum)
        heads = FirstHeads(
            sock, dialect, silence_timeout_s=self._silence_timeout_s, max_frame_bytes=self._max_frame_bytes
        )
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        heartbeat_at = time.monotonic()
        renew_at = heartbeat_at + self._renew_after_s
        while True:
            is_closing = self._closing.is_set()  # read before the offset, which is final once this is set
            offset = self._wanted or Offset(0)
            if promise.is_new(offset) or time.monotonic() >= heartbeat_at:
                report = dialect.report(promise.checked(offset))
                if not self._turns.begin():
                    return False
                self._note_connected()
                sock.sendall(report)
                self._acknowledged = offset
                heads.reported(offset)
                heartbeat_at = time.monotonic() + self._heartbeat_interval_s
            if is_closing:
                if _is_gone(sock):  # a master that left before the last report has not got it
                    raise _error_of(sock)
                return True
            if self._turns.are_readers:
                return False
            if time.monotonic() >= renew_at:
                self._end_previous()
                self._previous = None if self._turns.are_taken else sock
                return False
            poller.register(sock, _PEER_GONE if heads.are_over else _PEER_GONE | select.POLLIN)
            wake_at = min(heartbeat_at, renew_at)
            self._heed(poller.poll(max(wake_at - time.monotonic(), 0) * 1000), sock, heads)

    def _heed(self, events: list[tuple[int, int]], sock: socket.socket, heads: FirstHeads) -> None:
        """Consume what woke the thread up, and handle what the master sent or did."""
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        happened = dict(events).get(sock.fileno(), 0)
        if happened & select.POLLIN:
            if heads.take():
                self._note_counted()
            self._end_previous()  # only now is it certain that the master knows this one
        elif happened:
            raise _error_of(sock)
        heads.check_silence()

    def _note_connected(self) -> None:
        with self._lock:
            if self._connected_since is None:
                self._connected_since = datetime.now(UTC)
                self._connections += 1

    def _note_counted(self) -> None:
        """Note that the master counts our reports, and that its log goes on where the replica ends."""
        with self._lock:
            self._last_error = None

    def _note_failure(self, failure: Exception) -> None:
        self._must_ask = True
        self._master.look_again()
        error = failure if isinstance(failure, (LogtwinError, OSError)) else of_log(failure, self._log_id)
        with self._lock:
            is_news = self._connected_since is not None or self._last_error != str(error)
            self._connected_since = None
            self._last_error = str(error)
        level = logging.WARNING if is_news else logging.DEBUG
        _logger.log(
            level, "%s: acknowledging to %s failed, will retry: %s", self._log_id, self._address or "its master", error
        )


def _is_gone(sock: socket.socket) -> bool:
    """Whether the other side has closed the connection, as far as is known here."""
    poller = select.poll()
    poller.register(sock, _PEER_GONE)
    return bool(poller.poll(0))


def _error_of(sock: socket.socket) -> OSError:
    """Return the error that ended a connection; a ConnectionResetError if the other side closed it."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return OSError(code, os.strerror(code)) if code else ConnectionResetError("the master closed the connection")
