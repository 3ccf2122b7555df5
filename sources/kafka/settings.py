"""How to reach a Kafka cluster: its servers, how long to wait for them, who we are to them.

These values travel to tasks, into logs and errors: a secret is the place where it is found (`sources.secrets`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from sources.address import Address
from sources.errors import ConfigurationError
from sources.secrets import Secret
from sources.tls import Tls

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How a connection is protected and who it is made for, in Kafka's own words (security.protocol, sasl.mechanism).

    Files are PEM: `ca_file` the certificates that the brokers' are signed by (None: those that the system trusts),
    `certificate_file` and `key_file` our own, for brokers that ask for one.

    Raises ConfigurationError where something is missing, or is there to no effect.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: Secret | None = None
    password: Secret | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    check_hostname: bool = True

    def __post_init__(self) -> None:
        _check_word("protocol", self.protocol, get_args(Protocol))
        sasl = {"mechanism": self.mechanism, "username": self.username, "password": self.password}
        for name, value in sasl.items():
            self._check_use(name, is_given=value is not None, has_effect=self.with_sasl)
            if self.with_sasl and value is None:
                raise ConfigurationError(f"security protocol {self.protocol} needs a {name}")
        if self.mechanism is not None:
            _check_word("mechanism", self.mechanism, get_args(Mechanism))
        for name in ("ca_file", "certificate_file"):
            self._check_use(name, is_given=getattr(self, name) is not None, has_effect=self.with_tls)
        for name in ("key_file", "key_password"):
            has_effect = self.certificate_file is not None
            self._check_use(name, is_given=getattr(self, name) is not None, has_effect=has_effect)
        self._check_use("check_hostname = false", is_given=not self.check_hostname, has_effect=self.with_tls)

    @property
    def with_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def tls(self) -> Tls | None:
        """None where the protocol has none."""
        if not self.with_tls:
            return None
        return Tls(
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            key_password=self.key_password,
            check_hostname=self.check_hostname,
        )

    @property
    def with_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def _check_use(self, name: str, *, is_given: bool, has_effect: bool) -> None:
        if is_given and not has_effect:
            needed = "certificate_file" if name.startswith("key_") else "another protocol"
            raise ConfigurationError(
                f"{name} has no effect with security protocol {self.protocol}", hint=f"Remove it, or give {needed}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """A cluster and how to speak with it. One server is enough to find the others.

    Raises ConfigurationError for a server that is no host:port, and where there is none.
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
