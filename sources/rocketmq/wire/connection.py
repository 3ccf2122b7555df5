"""Sockets to a broker or a name server, with TLS, signatures and refusals.

A failed connection is MasterUnreachable, worth another attempt later. A denial is final: AccessDenied if it is the
broker's, ConfigurationError if it is TLS's. What must hold: a secret is in a request, and in nothing that is raised or
shown.
"""

from __future__ import annotations

import itertools
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar

from sources.access.address import Address
from sources.access.security import Tls, is_refusal, no_tls, tls_context
from sources.errors import LogtwinError, MasterUnreachable
from sources.rocketmq.wire.remoting import DEFAULT_MAX_FRAME_BYTES, Command, FrameBuffer
from sources.rocketmq.wire.security import RemotingSecurity, denied, is_denial, signed
from sources.steps import Steps

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 2.0
"""Between two attempts to connect: twice as long after each failure, up to the second."""

NO_SECURITY: Final = RemotingSecurity()


def connect(
    address: Address, *, timeout_ms: int, attempts: int = 1, receive_buffer_bytes: int | None = None
) -> socket.socket:
    """Connect over TCP, without Nagle's delay.

    Raises MasterUnreachable after `attempts` failures.
    """
    cause: OSError | None = None
    for attempt in range(attempts):
        if attempt:
            time.sleep(min(FIRST_PAUSE_S * 2 ** (attempt - 1), MOST_PAUSE_S))
        try:
            return _connect_once(address, timeout_ms / 1000, receive_buffer_bytes)
        except OSError as error:
            cause = error
    raise MasterUnreachable(
        f"cannot connect to {address}, {attempts} attempt{'s' if attempts > 1 else ''}",
        found=str(cause) or type(cause).__name__,
        hint="Check that the broker runs, that the address and port are right, and that nothing blocks the way.",
    ) from cause


def _connect_once(address: Address, timeout_s: float, receive_buffer_bytes: int | None) -> socket.socket:
    """Connect to the first address of the name that answers."""
    cause: OSError | None = None
    for family, kind, protocol, _, where in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer_bytes is not None:  # limits what the peer may send only if set before connecting
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            connection.connect(where)
        except OSError as error:
            connection.close()
            cause = error
        else:
            return connection
    raise cause or OSError(f"{address.host} has no address")


def connect_securely(address: Address, tls: Tls | None, *, timeout_ms: int, attempts: int = 1) -> socket.socket:
    """Like `connect`, with TLS if given; its handshake may take as long again.

    Raises ConfigurationError for a certificate that is not trusted and if TLS is not possible.
    """
    context = None if tls is None else tls_context(tls)
    connection = connect(address, timeout_ms=timeout_ms, attempts=attempts)
    if context is None:
        return connection
    try:
        return context.wrap_socket(connection, server_hostname=address.host)
    except OSError as error:
        connection.close()
        if is_refusal(error):
            raise no_tls(error, address) from error
        raise MasterUnreachable(
            f"no TLS with {address}",
            found=str(error) or type(error).__name__,
            hint="Does it speak TLS (tls.server.mode)? A broker that ends breaks off, too.",
        ) from error


def finished(steps: Steps[T]) -> T:
    """Do all of the work, with the socket itself waiting at each step. Raises what it raises."""
    try:
        awaited = next(steps)
        while True:
            left_s = awaited.until_s - time.monotonic()
            if left_s > 0:
                awaited.sock.settimeout(left_s)
                awaited = next(steps)
            else:
                awaited = steps.throw(TimeoutError())
    except StopIteration as end:
        value: T = end.value
        return value


class Connection(ABC):
    """Something open that has to be closed; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it. Idempotent."""


class RemotingConnection(Connection):
    """A connection to a broker's normal port, or to a name server.

    All such connections derive from this class, so each one signs and speaks TLS if configured, and tells a refusal for
    lack of rights from any other.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout_ms: int = 5000,
        connect_attempts: int = 3,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        security: RemotingSecurity = NO_SECURITY,
    ) -> None:
        self.address = address
        self._security = security
        self._credentials = security.reveal()
        self._frames = FrameBuffer(max_frame_bytes)
        self._opaques = itertools.count(1)
        self._socket = connect_securely(address, security.tls, timeout_ms=connect_timeout_ms, attempts=connect_attempts)

    def close(self) -> None:
        self._socket.close()

    def _ready(self, request: Command) -> Command:
        """Return `request` as it is sent: with an opaque of its own, and signed."""
        request = replace(request, opaque=next(self._opaques))
        return request if self._credentials is None else signed(request, self._credentials)

    def _allowed(self, request_code: int, answer: Command) -> Command:
        """Return `answer` without the secrets that it may repeat. Raises AccessDenied."""
        if answer.remark is not None:
            answer = replace(answer, remark=self._security.hidden(answer.remark, self._credentials))
        if is_denial(answer):
            raise denied(request_code, answer, f"the broker at {self.address}", self._security.access_key)
        return answer

    def _failed(self, error: OSError) -> LogtwinError:
        """Return our error for a socket's. With TLS 1.3 only now do we learn that our certificate was refused."""
        return no_tls(error, self.address) if is_refusal(error) else self._broken(error)

    @abstractmethod
    def _broken(self, cause: object) -> MasterUnreachable:
        """Return the error for a connection that ended."""
