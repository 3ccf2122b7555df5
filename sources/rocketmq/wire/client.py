"""Remoting requests to a broker or a name server, one at a time.

Every wait has a limit. A server that connects but does not answer is MasterSilent, worth another attempt later.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Any, Final

from sources.access.address import Address
from sources.errors import LogtwinError, MasterSilent, MasterUnreachable, ProtocolViolation
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.broker_words import is_elected, log_bounds, words_of
from sources.rocketmq.wire.connection import NO_SECURITY, RemotingConnection, finished
from sources.rocketmq.wire.remoting import (
    DEFAULT_MAX_FRAME_BYTES,
    Command,
    RequestCode,
    ResponseCode,
    accepted,
    code_name,
    encode_command,
    loads,
)
from sources.rocketmq.wire.security import RemotingSecurity
from sources.steps import Awaited, Steps

RECEIVE_BYTES: Final = 64 * 1024
FIRST_WAIT_S: Final = 0.1
RUNTIME_INFO: Final = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
BROKER_CONFIG: Final = Command(RequestCode.GET_BROKER_CONFIG)


class RemotingClient(RemotingConnection):
    """A connection that sends one request at a time.

    It ignores what the broker sends unasked (flag bit 0 unset), and late answers to requests that were given up.
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
        super().__init__(
            address,
            connect_timeout_ms=connect_timeout_ms,
            connect_attempts=connect_attempts,
            max_frame_bytes=max_frame_bytes,
            security=security,
        )
        self._call_timeout_s = call_timeout_ms / 1000
        self._config = b"", words_of(b"")  # the last answer to request 26: its text, and what that says
        self.elected: bool | None = None  # whether a controller elects the broker's master; None before it was asked

    def is_whole(self) -> bool:
        """Whether it can take another request: nothing has come unasked, such as its end, and our secrets are the same.

        Unasked messages are for clients of another kind, so nothing is lost with them.
        """
        ready = select.poll()  # select.select cannot have a thousand files
        try:
            ready.register(self._socket, select.POLLIN)
            return not ready.poll(0) and self._security.reveal() == self._credentials
        except (LogtwinError, OSError, ValueError):
            return False

    def call(self, request: Command) -> Command:
        """Return the broker's answer to `request`, which gets its opaque here.

        Raises MasterRefused with code and remark if the answer's code is not 0, MasterSilent without an answer in time,
        MasterUnreachable if the connection breaks, AccessDenied, ProtocolViolation.
        """
        answer = self.exchange(request)
        return self._accepted(request.code, answer)

    def exchange(self, request: Command) -> Command:
        """Like `call`, but return an answer of any code, unless it says that we may not ask."""
        return finished(self.exchanging(request))

    def exchanging(self, request: Command) -> Steps[Command]:
        """`exchange` in steps. Over TLS only the socket itself can wait: a part of what has come may be inside it."""
        request = self._ready(request)
        until_s = time.monotonic() + self._call_timeout_s
        try:
            self._socket.settimeout(self._call_timeout_s)
            self._socket.sendall(encode_command(request))
            while True:
                yield Awaited(self._socket, until_s)
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise self._broken("closed by the broker")
                for command in self._frames.feed(data):
                    if command.is_response and command.opaque == request.opaque:
                        return self._allowed(request.code, command)
        except TimeoutError as error:
            raise MasterSilent(
                f"the broker at {self.address} did not answer request {code_name(RequestCode, request.code)}",
                expected=f"an answer within {self._call_timeout_s:g} s",
                found="none",
                hint="Check that the address is the broker's normal (listen) port, and how busy the broker is.",
            ) from error
        except OSError as error:
            raise self._failed(error) from error

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
        """Return what the broker says about itself (request 28): names to values, all text.

        A 4.9.7 broker answers with a system error until its statistics have their first sample, about a second after
        it has started. After such an answer this asks again, for as long as a call may take.
        """
        answer = self.exchange(RUNTIME_INFO)
        ends_s, wait_s = time.monotonic() + self._call_timeout_s, FIRST_WAIT_S
        while answer.code == ResponseCode.SYSTEM_ERROR and time.monotonic() < ends_s:
            time.sleep(wait_s)
            wait_s *= 2
            answer = self.exchange(RUNTIME_INFO)
        return self._runtime_info(answer)

    def _runtime_info(self, answer: Command) -> dict[str, str]:
        body = loads(self._accepted(RUNTIME_INFO.code, answer).body)
        table = body.get("table") if isinstance(body, dict) else None
        if not isinstance(table, dict):
            raise ProtocolViolation(
                f"the runtime info of the broker at {self.address} is none",
                expected='a JSON object "table"',
                found=body,
            )
        return {str(name): str(value) for name, value in table.items()}

    def commit_log_bounds(self) -> OffsetRange:
        """Return what the broker's commit log holds (request 28)."""
        return log_bounds(self.runtime_info())

    def bounds_in_steps(self) -> Steps[OffsetRange | None]:
        """`commit_log_bounds` in steps; None if the broker cannot tell them yet."""
        answer = yield from self.exchanging(RUNTIME_INFO)
        return None if answer.code == ResponseCode.SYSTEM_ERROR else log_bounds(self._runtime_info(answer))

    def ha_status(self) -> dict[str, Any] | None:
        """Return the slaves as the master counts them (request 907); None if the broker does not know it (4.x)."""
        answer = self.exchange(Command(RequestCode.GET_BROKER_HA_STATUS))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        status = loads(self._accepted(RequestCode.GET_BROKER_HA_STATUS, answer).body)
        if not isinstance(status, dict):
            raise ProtocolViolation(f"the HA status of the broker at {self.address} is none", found=status)
        return status

    def highest_slave_offset(self) -> Offset | None:
        """Return the highest offset acknowledged by a slave connected now; None without one, or from 4.x."""
        slaves = (self.ha_status() or {}).get("haConnectionInfo") or []
        try:
            return max((Offset(int(slave["slaveAckOffset"])) for slave in slaves), default=None)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolViolation(
                f"the HA status of the broker at {self.address} has a slave without offset",
                expected="a number slaveAckOffset",
                found=slaves,
            ) from error

    def broker_config(self) -> Mapping[str, str]:
        """Return the broker's configuration (request 26) as it is now; it is parsed only where the text has changed."""
        text = self.call(BROKER_CONFIG).body
        if text != self._config[0]:
            self._config = text, words_of(text)
        config = self._config[1]
        self.elected = is_elected(config)
        return config

    def is_of_elected(self) -> bool:
        """Whether a controller elects the broker's master. The broker is asked once: it settles that at its start."""
        return is_elected(self.broker_config()) if self.elected is None else self.elected
