"""The registration of the master with a name server, where slaves of 5.x and clients look for it.

It sends request 103 at the start and every `every_s`, and 104 at the stop, over one lasting connection: a name server
forgets a broker whose connection ends. Format (`RegisterBrokerRequestHeader`, `RegisterBrokerBody` of
org.apache.rocketmq, as 4.9 and 5.x read it):

======================  ===============================================================================================
ext field               meaning
======================  ===============================================================================================
brokerName, brokerAddr  the name that master and slaves share; the address for requests
clusterName, brokerId   brokerId 0 is the master
haServerAddr            the address for slaves, which the name server tells those that register as its slaves
bodyCrc32               CRC-32 of the body AND 0x7FFFFFFF
compressed              whether the body is deflated; never, here
======================  ===============================================================================================

The body is JSON: `filterServerList`, and `topicConfigSerializeWrapper`, which is an answer to request 21. A 5.x name
server refuses a broker that it does not know with exactly one topic, because it takes that for an increment; so the
topics that a real broker has for itself are always included. The version in the header matters: below 3.0.11 the body
is different.

An absent name server hinders nothing. It is tried again at the next interval, and each change of state is logged once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from sources.access.address import Address
from sources.errors import ConfigurationError, MasterError
from sources.rocketmq.format.commitlog import body_crc
from sources.rocketmq.wire.remoting import MASTER_ID, Command, FrameBuffer, RequestCode, accepted, encode_command

log = logging.getLogger(__name__)

READ_BYTES: Final = 64 * 1024
CALL_TIMEOUT_S: Final = 3.0
VERSION: Final = 413  # V5_0_0 in MQVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The names and addresses a master is registered with."""

    broker_name: str
    cluster_name: str
    address: Address
    ha_address: Address

    def ext_fields(self) -> dict[str, str]:
        """Return the fields that 103 and 104 have in common."""
        return {
            "brokerAddr": str(self.address),
            "brokerId": MASTER_ID,
            "brokerName": self.broker_name,
            "clusterName": self.cluster_name,
        }


class Registration:
    """Keeps one master known to one name server, from `start` to `stop`."""

    def __init__(
        self, name_server: Address, identity: Identity, topics: Callable[[], Mapping[str, Any]], *, every_s: float
    ) -> None:
        """`topics` returns what a name server is told about topics. Raises ConfigurationError."""
        if ipaddress.ip_address(identity.address.host).is_unspecified:
            raise ConfigurationError(
                "a master that registers with a name server needs an address of its own",
                expected="a host that slaves and clients can connect to",
                found=identity.address.host,
                hint="Give as host the address of one interface, or no name server.",
            )
        self._name_server = name_server
        self._identity = identity
        self._topics = topics
        self._every_s = every_s
        self._link: _Link | None = None
        self._is_registered: bool | None = None  # None: not tried yet
        self._registering: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._registering = asyncio.create_task(self._keep_registered())

    async def stop(self) -> None:
        """Stop that, and unregister this master. Takes a bounded time; a failure is logged."""
        if self._registering is None:
            return
        self._registering.cancel()
        await asyncio.gather(self._registering, return_exceptions=True)
        if self._link is not None:
            try:
                await self._ask(
                    self._link, Command(RequestCode.UNREGISTER_BROKER, ext_fields=self._identity.ext_fields())
                )
            except (OSError, MasterError) as error:
                log.warning(
                    "the name server at %s could not be told that this master stops: %s",
                    self._name_server,
                    _text(error),
                )
            self._hang_up()

    async def _keep_registered(self) -> None:
        while True:
            try:
                await self._register()
            except (OSError, MasterError) as error:
                self._hang_up()
                self._say(False, f"not registered with the name server at {self._name_server}: {_text(error)}")
            else:
                self._say(True, f"registered with the name server at {self._name_server}")
            await asyncio.sleep(self._every_s)

    async def _register(self) -> None:
        if self._link is None or self._link.is_at_end:
            self._hang_up()
            self._link = await _Link.to(self._name_server)
        await self._ask(self._link, self._request())

    def _request(self) -> Command:
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": self._topics()}).encode()
        fields = {
            "bodyCrc32": str(body_crc(body)),
            "compressed": "false",
            "haServerAddr": str(self._identity.ha_address),
        }
        return Command(
            RequestCode.REGISTER_BROKER, ext_fields=self._identity.ext_fields() | fields, body=body, version=VERSION
        )

    async def _ask(self, link: _Link, request: Command) -> None:
        """Send a request. Raises OSError, also if no answer comes in time, MasterRefused, ProtocolViolation."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            accepted(request.code, await link.ask(request), "it")

    def _say(self, is_registered: bool, what: str) -> None:
        if is_registered is not self._is_registered:
            log.log(logging.INFO if is_registered else logging.WARNING, what)
        self._is_registered = is_registered

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None


class _Link:
    """A connection to a name server that sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer()
        self._opaques = itertools.count(1)

    @classmethod
    async def to(cls, address: Address) -> Self:
        """Connect. Raises OSError, also if nobody answers in time."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            return cls(*await asyncio.open_connection(address.host, address.port))

    @property
    def is_at_end(self) -> bool:
        """Whether the other side has closed it."""
        return self._reader.at_eof()

    async def ask(self, request: Command) -> Command:
        """Return the answer. Raises OSError if the connection ends, ProtocolViolation."""
        request = replace(request, opaque=next(self._opaques))
        self._writer.write(encode_command(request))
        while data := await self._reader.read(READ_BYTES):
            for command in self._frames.feed(data):
                if command.is_response and command.opaque == request.opaque:
                    return command
        raise ConnectionResetError("it closed the connection")

    def close(self) -> None:
        self._writer.transport.abort()


def _text(error: Exception) -> str:
    """Return the error's text, or its type, because a timeout has no text."""
    return str(error) or type(error).__name__
