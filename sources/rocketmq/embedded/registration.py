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
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from sources.access.address import Address
from sources.errors import ConfigurationError, LogtwinError
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import MASTER_ID, Command, RequestCode

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 3000
VERSION: Final = 413  # V5_0_0 in MQVersion


class Registration:
    """Keeps one master known to one name server, from `start` to `stop`."""

    def __init__(
        self,
        name_server: Address,
        topics: Callable[[], Mapping[str, Any]],
        *,
        broker_name: str,
        cluster_name: str,
        address: Address,
        ha_address: Address,
        every_s: float,
    ) -> None:
        """`topics` returns what a name server is told about topics. Raises ConfigurationError."""
        if ipaddress.ip_address(address.host).is_unspecified:
            raise ConfigurationError(
                "a master that registers with a name server needs an address of its own",
                expected="a host that slaves and clients can connect to",
                found=address.host,
                hint="Give as host the address of one interface, or no name server.",
            )
        self._name_server = name_server
        self._topics = topics
        self._identity = {
            "brokerAddr": str(address),
            "brokerId": MASTER_ID,
            "brokerName": broker_name,
            "clusterName": cluster_name,
        }
        self._ha_address = ha_address
        self._every_s = every_s
        self._client: RemotingClient | None = None
        self._is_registered: bool | None = None  # None: not tried yet
        self._registering: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._registering = asyncio.create_task(self._keep_registered())

    async def stop(self) -> None:
        """Stop that, and unregister this master. Takes a bounded time; a failure is logged."""
        if self._registering is not None:
            self._stopping.set()
            await self._registering

    async def _keep_registered(self) -> None:
        while not self._stopping.is_set():
            await asyncio.to_thread(self._register, self._request())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._stopping.wait()
        await asyncio.to_thread(self._unregister)

    def _request(self) -> Command:
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": self._topics()}).encode()
        fields = {"bodyCrc32": str(body_crc(body)), "compressed": "false", "haServerAddr": str(self._ha_address)}
        return Command(RequestCode.REGISTER_BROKER, ext_fields=self._identity | fields, body=body, version=VERSION)

    def _register(self, request: Command) -> None:
        try:
            if self._client is None or not self._client.is_whole():
                self._hang_up()
                self._client = RemotingClient(
                    self._name_server,
                    connect_timeout_ms=CALL_TIMEOUT_MS,
                    connect_attempts=1,
                    call_timeout_ms=CALL_TIMEOUT_MS,
                )
            self._client.call(request)
        except LogtwinError as error:
            self._hang_up()
            self._say(False, f"not registered with the name server at {self._name_server}: {error}")
        else:
            self._say(True, f"registered with the name server at {self._name_server}")

    def _unregister(self) -> None:
        if self._client is None:
            return
        try:
            self._client.call(Command(RequestCode.UNREGISTER_BROKER, ext_fields=self._identity))
        except LogtwinError as error:
            log.warning("the name server at %s could not be told that this master stops: %s", self._name_server, error)
        self._hang_up()

    def _say(self, is_registered: bool, what: str) -> None:
        if is_registered is not self._is_registered:
            log.log(logging.INFO if is_registered else logging.WARNING, what)
        self._is_registered = is_registered

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
