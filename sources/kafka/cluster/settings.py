"""How to reach a Kafka cluster: its servers, the limits of waiting, our identity.

These values travel to tasks and into logs and errors, so they name secrets and never hold them
(`sources.access.security`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, get_args

from sources.access.address import Address
from sources.access.security import Secret, Tls
from sources.errors import ConfigurationError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
NO_OPTIONS: Final = Tls()


class Isolation(Enum):
    """Kafka's isolation level; the values are those of its protocol."""

    READ_UNCOMMITTED = 0
    """Every record up to the high watermark, including those of aborted and open transactions."""

    READ_COMMITTED = 1
    """Records up to the last stable offset, below which no transaction is open, without those of aborted ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The protection and the user of a connection, in Kafka's own words (security.protocol, sasl.mechanism).

    Raises ConfigurationError if something is missing, or has no effect.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: Secret | None = None
    password: Secret | None = None
    tls: Tls = NO_OPTIONS

    def __post_init__(self) -> None:
        _check_word("protocol", self.protocol, get_args(Protocol))
        sasl = {"mechanism": self.mechanism, "username": self.username, "password": self.password}
        for name, value in sasl.items():
            self._check_use(name, is_given=value is not None, has_effect=self.with_sasl)
            if self.with_sasl and value is None:
                raise ConfigurationError(f"security protocol {self.protocol} needs a {name}")
        if self.mechanism is not None:
            _check_word("mechanism", self.mechanism, get_args(Mechanism))
        for option in self.tls.given():
            self._check_use(option, is_given=True, has_effect=self.with_tls)

    @property
    def with_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def with_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def _check_use(self, name: str, *, is_given: bool, has_effect: bool) -> None:
        if is_given and not has_effect:
            raise ConfigurationError(
                f"{name} has no effect with security protocol {self.protocol}",
                hint="Remove it, or give another protocol.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """A cluster and how to speak to it. One server is enough to find the others.

    Raises ConfigurationError for a server that is not host:port, and if there is none.
    """

    servers: tuple[str, ...]
    security: Security = field(default_factory=Security)
    connect_timeout_ms: int = 5000
    connect_attempts: int = 3
    request_timeout_ms: int = 20000
    client_id: str = "logtwin"

    def __post_init__(self) -> None:
        if not self.servers:
            raise ConfigurationError("there is no server to connect to", expected="host:port, one or more")
        for server in self.servers:
            Address.parse(server)

    def __str__(self) -> str:
        return ",".join(self.servers)


def _check_word(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ConfigurationError(f"there is no {name} of this name", expected=" or ".join(known), found=repr(given))
