"""A broker as a job reaches it: by its two addresses, or by name through a name server.

The address is looked up at each use, so the next request goes where a name server says, or said in the last second if
nothing has failed since. Connections stay open for a while, and take further requests to the same address
(`sources.access.kept`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from sources.access.address import Address
from sources.access.kept import KeptConnections, Remembered
from sources.errors import ConfigurationError, LogtwinError, MasterError, MasterUnreachable, ProtocolViolation
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.broker_words import CLUSTER_INFO, Words, check_kind, groups_in, ha_address
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.connection import NO_SECURITY
from sources.rocketmq.wire.remoting import MASTER_ID, Command, RequestCode, ResponseCode
from sources.rocketmq.wire.security import RemotingSecurity
from sources.steps import Steps


@dataclass(frozen=True, slots=True)
class _Peer:
    """A server and how to connect to it: a connection serves only requests with the same limits and security."""

    address: Address
    connect_timeout_ms: int
    connect_attempts: int
    security: RemotingSecurity

    def connect(self) -> RemotingClient:
        return RemotingClient(
            self.address,
            connect_timeout_ms=self.connect_timeout_ms,
            connect_attempts=self.connect_attempts,
            call_timeout_ms=self.connect_timeout_ms,
            security=self.security,
        )


_connections: Final = KeptConnections[_Peer, RemotingClient](_Peer.connect)


def _asked_for_groups(name_server: _Peer) -> Mapping[str, Any]:
    with _connections.kept(name_server) as client:
        return groups_in(client.exchange(CLUSTER_INFO), name_server.address)


_groups: Final = Remembered(_asked_for_groups)
"""The broker groups of each name server, of all its brokers at once: with a thousand of them, a request for each would
take seconds of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBroker(ABC):
    """A broker.

    All methods raise MasterUnreachable, MasterSilent, AccessDenied, ProtocolViolation, MasterError; and
    ConfigurationError for secrets and certificates.
    """

    connect_timeout_ms: int = 5000
    connect_attempts: int = 3
    security: RemotingSecurity = NO_SECURITY

    @abstractmethod
    def ha(self, config: Words | None = None) -> Address:
        """Return the address at which it listens for slaves now. `config` is its configuration, if known."""

    @abstractmethod
    def remoting(self) -> Address:
        """Return the address at which it answers requests now."""

    def known_remoting(self) -> Address | None:
        """Return `remoting` if that takes no request, else None."""
        return None

    @property
    @abstractmethod
    def address(self) -> str:
        """Where to find it, in a word."""

    @contextmanager
    def client(self) -> Iterator[RemotingClient]:
        """Give a connection for requests, as long as the context lasts. It may be kept from an earlier use."""
        with self._looking_again(), self._client(self.remoting()) as client:
            yield client

    def look_again(self) -> None:
        """Forget what name servers said of its address: something has failed there."""
        _groups.forget()

    @contextmanager
    def _looking_again(self) -> Iterator[None]:
        try:
            yield
        except LogtwinError:
            self.look_again()
            raise

    def bounds(self) -> OffsetRange:
        """Return what its commit log holds now."""
        with self.client() as client:
            return client.commit_log_bounds()

    def bounds_in_steps(self, known: Offset | None) -> Steps[OffsetRange | None] | None:
        """Return `bounds` in steps, over a kept connection; None if there is none to use.

        The steps return None if one request is not enough: the log ends above `known`, and may be an elected master's.
        """
        address = self.known_remoting()
        if address is None or self.security.tls is not None:
            return None
        kept = _connections.if_kept(self._peer(address))
        return None if kept is None else self._bounds_in_steps(kept, known)

    def _bounds_in_steps(
        self, kept: AbstractContextManager[RemotingClient], known: Offset | None
    ) -> Steps[OffsetRange | None]:
        with self._looking_again(), kept as client:
            held = yield from client.bounds_in_steps()
            is_all = held is None or known is None or held.end <= known or client.elected is False
            return held if is_all else None

    def maximum(self) -> Offset:
        """Return where its commit log ends now."""
        return self.bounds().end

    def config(self) -> Words:
        with self.client() as client:
            return client.broker_config()

    def answer(self, request: Command) -> Command:
        """Return its answer to `request`, with any code except a denial (AccessDenied)."""
        with self.client() as client:
            return client.exchange(request)

    def _client(self, address: Address) -> AbstractContextManager[RemotingClient]:
        return _connections.kept(self._peer(address))

    def _peer(self, address: Address) -> _Peer:
        return _Peer(address, self.connect_timeout_ms, self.connect_attempts, self.security)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAt(RemoteBroker):
    """A broker with given addresses."""

    master: Address
    broker: Address

    def ha(self, config: Words | None = None) -> Address:
        return self.master

    def remoting(self) -> Address:
        return self.broker

    def known_remoting(self) -> Address:
        return self.broker

    @property
    def address(self) -> str:
        return str(self.master)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtBroker(RemoteBroker):
    """The master of the broker group `name`, according to the first of the `asked` servers that knows it.

    If there is no master, now or ever, this is MasterUnreachable. The broker itself tells its HA address (request 26).
    """

    name: str
    asked: tuple[Address, ...]
    kind: ClassVar[str]

    def ha(self, config: Words | None = None) -> Address:
        return ha_address(self.config() if config is None else config)

    def remoting(self) -> Address:
        failures: list[LogtwinError] = []
        for address in self.asked:
            try:
                return self._master_by(address)
            except (MasterError, ConfigurationError) as failure:
                failures.append(failure)
        # Prefer an error that may go away later, whatever the other addresses answered.
        raise next((one for one in failures if one.is_transient), failures[-1])

    @property
    def address(self) -> str:
        return f"{self.name} at {self.kind} {';'.join(map(str, self.asked))}"

    @abstractmethod
    def _master_by(self, asked: Address) -> Address:
        """Return where the master answers, according to `asked`. Raises MasterError, ConfigurationError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedBroker(SoughtBroker):
    """A broker found through the controllers that elect its master (request 1004); only their leader answers."""

    kind = "controller"

    def _master_by(self, controller: Address) -> Address:
        request = Command(RequestCode.CONTROLLER_GET_REPLICA_INFO, ext_fields={"brokerName": self.name})
        with self._client(controller) as client:
            answer = client.exchange(request)
        check_kind(controller, answer, self.kind)
        address = answer.ext_fields.get("masterAddress")
        if answer.code != ResponseCode.SUCCESS or not address:
            raise MasterUnreachable(
                f"the controller at {controller} knows no master of {self.name}",
                expected="the address of an elected broker",
                found=answer.remark or f"code {answer.code}",
                hint="Only the leader of the controllers answers, so name all of them. If none knows a master, no "
                "replica in sync is alive: mqadmin getSyncStateSet.",
            )
        return Address.parse(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBroker(SoughtBroker):
    """A broker found through name servers with which it registers (request 106)."""

    kind = "name server"

    def known_remoting(self) -> Address | None:
        """Return the address that the first name server has just given."""
        first = self.asked[0]
        groups = _groups.known(self._peer(first))
        with suppress(MasterError):
            return None if groups is None else self._master_of(groups, first)
        return None

    def _master_by(self, name_server: Address) -> Address:
        return self._master_of(_groups.value(self._peer(name_server)), name_server)

    def _master_of(self, groups: Mapping[str, Any], name_server: Address) -> Address:
        group = groups.get(self.name) or {}
        addresses = (group.get("brokerAddrs") or {}) if isinstance(group, dict) else group
        if not isinstance(addresses, dict):
            raise ProtocolViolation(
                f"the name server at {name_server} tells no addresses of {self.name}",
                expected='a JSON object "brokerAddrs"',
                found=group,
            )
        if MASTER_ID not in addresses:
            raise MasterUnreachable(
                f"the name server at {name_server} knows no master of {self.name}",
                expected=f"brokerName {self.name} with brokerId {MASTER_ID}",
                found=f"ids {', '.join(addresses)}" if addresses else f"brokers {', '.join(sorted(groups)) or 'none'}",
                hint="Check that the master runs and registers there, and that the log id is rocketmq/<brokerName>.",
            )
        return Address.parse(str(addresses[MASTER_ID]))
