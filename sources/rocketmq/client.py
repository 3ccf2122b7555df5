"""Sockets to a broker: a connection to it, and its remoting requests.

Every wait has a limit. What cannot be connected is MasterUnreachable, what connects and does not answer is
MasterSilent; both are worth another attempt later. What does not let us in is final: AccessDenied where the broker says
so, ConfigurationError where TLS does. What must hold: a secret is in a request, and in nothing that is raised or shown.
"""

from __future__ import annotations

import itertools
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
)

from sources.address import Address
from sources.errors import MasterSilent, MasterUnreachable, ProtocolViolation
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.broker_words import log_bounds
from sources.rocketmq.denials import denied, is_denial
from sources.rocketmq.remoting import (
    DEFAULT_MAX_FRAME_BYTES,
    Command,
    FrameBuffer,
    RequestCode,
    ResponseCode,
    accepted,
    code_name,
    encode_command,
    loads,
)
from sources.rocketmq.security import RemotingSecurity
from sources.rocketmq.signing import signed
from sources.tls import Tls, is_refusal, no_tls, tls_context

RECEIVE_BYTES: Final = 64 * 1024
NO_SECURITY: Final = RemotingSecurity()


def connect(
    address: Address, *, timeout_ms: int, attempts: int = 1, receive_buffer_bytes: int | None = None
) -> socket.socket:
    """A TCP connection, without Nagle's delay. Waits 0.1 s after the first failure, twice as long after each next one.

    Raises MasterUnreachable once `attempts` have failed.
    """
    retrying = Retrying(
        stop=stop_after_attempt(attempts),
        wait=wait_exponential(multiplier=0.1, max=2.0),
        retry=retry_if_exception_type(OSError),
    )
    try:
        return retrying(_connect_once, address, timeout_ms / 1000, receive_buffer_bytes)
    except RetryError as error:
        cause = error.last_attempt.exception()
        raise MasterUnreachable(
            f"cannot connect to {address}, {attempts} attempt{'s' if attempts > 1 else ''}",
            found=str(cause) or type(cause).__name__,
            hint="Check that the broker runs, that the address and port are right, and that nothing blocks the way.",
        ) from cause


def _connect_once(address: Address, timeout_s: float, receive_buffer_bytes: int | None) -> socket.socket:
    """To the first address of the name that answers."""
    cause: OSError | None = None
    for family, kind, protocol, _, where in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer_bytes is not None:  # only before connecting does it bound what the peer may send
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            connection.connect(where)
        except OSError as error:
            connection.close()
            cause = error
        else:
            return connection
    raise cause or OSError(f"{address.host} has no address")


def connect_securely(address: Address, tls: Tls | None, *, timeout_ms: int, attempts: int = 1) -> socket.socket:
    """As `connect`, and with TLS where that is asked for; its handshake takes as long again at the most.

    Raises ConfigurationError for a certificate that is not trusted and for TLS that cannot be.
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


class Connection(ABC):
    """What is open until it is closed; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""


class RemotingClient(Connection):
    """One connection to a broker's normal port, or to a name server.

    Requests are answered one at a time. What the broker sends on its own account (flag bit 0 unset) and late answers
    to requests that were given up are ignored.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout_ms: int = 5000,
        connect_attempts: int = 3,
        call_timeout_ms: int = 5000,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        security: RemotingSecurity = NO_SECURITY,
    ) -> None:
        self.address = address
        self._security = security
        self._credentials = security.reveal()
        self._call_timeout_s = call_timeout_ms / 1000
        self._frames = FrameBuffer(max_frame_bytes)
        self._opaques = itertools.count(1)
        self._connection = connect_securely(
            address, security.tls, timeout_ms=connect_timeout_ms, attempts=connect_attempts
        )

    def close(self) -> None:
        self._connection.close()

    def call(self, request: Command) -> Command:
        """The broker's answer to `request`, which gets its opaque here.

        Raises MasterRefused with code and remark where the answer's code is not 0, MasterSilent without an answer in
        time, MasterUnreachable where the connection breaks, AccessDenied, ProtocolViolation.
        """
        answer = self.exchange(request)
        return self._accepted(request.code, answer)

    def exchange(self, request: Command) -> Command:
        """As `call`, whatever the answer's code is, as long as it does not say that we may not ask."""
        request = replace(request, opaque=next(self._opaques))
        if self._credentials is not None:
            request = signed(request, self._credentials)
        return self._allowed(request.code, self._answer(request))

    def _answer(self, request: Command) -> Command:
        deadline = time.monotonic() + self._call_timeout_s
        try:
            self._connection.settimeout(self._call_timeout_s)
            self._connection.sendall(encode_command(request))
            return self._await_answer(request.opaque, deadline)
        except TimeoutError as error:
            raise MasterSilent(
                f"the broker at {self.address} did not answer request {code_name(RequestCode, request.code)}",
                expected=f"an answer within {self._call_timeout_s:g} s",
                found="none",
                hint="Check that the address is the broker's normal (listen) port, and how busy the broker is.",
            ) from error
        except OSError as error:
            if is_refusal(error):  # of TLS 1.3 a client hears only now that its certificate was not wanted
                raise no_tls(error, self.address) from error
            raise self._broken(error) from error

    def _await_answer(self, opaque: int, deadline: float) -> Command:
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._connection.settimeout(left_s)
            data = self._connection.recv(RECEIVE_BYTES)
            if not data:
                raise self._broken("closed by the broker")
            for command in self._frames.feed(data):
                if command.is_response and command.opaque == opaque:
                    return command

    def _allowed(self, request_code: int, answer: Command) -> Command:
        """`answer`, without what it repeats of our secrets. Raises AccessDenied."""
        if answer.remark is not None:
            answer = replace(answer, remark=self._security.hidden(answer.remark, self._credentials))
        if is_denial(answer):
            raise denied(request_code, answer, f"the broker at {self.address}", self._security.access_key)
        return answer

    def _accepted(self, request_code: int, answer: Command) -> Command:
        return accepted(request_code, answer, f"the broker at {self.address}")

    def _broken(self, cause: object) -> MasterUnreachable:
        return MasterUnreachable(
            f"the connection to the broker at {self.address} broke",
            found=cause,
            hint="Check that the address is the broker's normal (listen) port, whether it wants TLS (tls = true), and "
            "the broker's own log.",
        )

    def runtime_info(self) -> dict[str, str]:
        """What the broker says of itself (28): names to values, all text.

        A 4.9.7 broker answers with a system error until its statistics have their first sample, about a second after
        it has booted: such an answer is asked for again, for as long as a call may take.
        """
        asking = Retrying(
            stop=stop_after_delay(self._call_timeout_s),
            wait=wait_exponential(multiplier=0.1, max=1.0),
            retry=retry_if_result(lambda answer: answer.code == ResponseCode.SYSTEM_ERROR),
            retry_error_callback=_last_result,
        )
        request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
        body = loads(self._accepted(request.code, asking(self.exchange, request)).body)
        table = body.get("table") if isinstance(body, dict) else None
        if not isinstance(table, dict):
            raise ProtocolViolation(
                f"the runtime info of the broker at {self.address} is none",
                expected='a JSON object "table"',
                found=body,
            )
        return {str(name): str(value) for name, value in table.items()}

    def commit_log_bounds(self) -> OffsetRange:
        """What the broker's commit log holds (28)."""
        return log_bounds(self.runtime_info())

    def ha_status(self) -> dict[str, Any] | None:
        """The slaves as the master counts them (907); None where the broker does not know the request (4.x)."""
        answer = self.exchange(Command(RequestCode.GET_BROKER_HA_STATUS))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        status = loads(self._accepted(RequestCode.GET_BROKER_HA_STATUS, answer).body)
        if not isinstance(status, dict):
            raise ProtocolViolation(f"the HA status of the broker at {self.address} is none", found=status)
        return status

    def highest_slave_offset(self) -> Offset | None:
        """The highest offset acknowledged by a slave connected now; None without a slave, and from a 4.x broker."""
        slaves = (self.ha_status() or {}).get("haConnectionInfo") or []
        try:
            return max((Offset(int(slave["slaveAckOffset"])) for slave in slaves), default=None)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolViolation(
                f"the HA status of the broker at {self.address} has a slave without offset",
                expected="a number slaveAckOffset",
                found=slaves,
            ) from error

    def broker_config(self) -> dict[str, str]:
        """The broker's configuration (26), from its properties text."""
        text = self.call(Command(RequestCode.GET_BROKER_CONFIG)).body.decode("utf-8", "replace")
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}


def _last_result(state: RetryCallState) -> Any:
    """What the last attempt gave, where all of them were unwanted."""
    return None if state.outcome is None else state.outcome.result()
