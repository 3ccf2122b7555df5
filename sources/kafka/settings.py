"""How to reach a Kafka cluster: its servers, how long to wait for them, who we are to them.

What must hold: a secret is named, never kept. These values travel to tasks, into logs and errors; in all of them a
secret is the place where it is found ("env:NAME", "file:PATH"), and it is read there when a connection is made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from sources.address import Address
from sources.errors import ConfigurationError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_WHERE: Final = "Set the variable, or write the file, where the tasks run, too."


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is found: an environment variable, or a file that holds nothing else.

    Raises ConfigurationError where `reference` is neither, without repeating it: it could be the secret itself.
    """

    reference: str

    def __post_init__(self) -> None:
        kind, _, where = self.reference.partition(":")
        if kind not in ("env", "file") or not where:
            raise ConfigurationError(
                "not the place of a secret", expected="env:NAME or file:PATH", hint="Never write the secret itself."
            )

    def __str__(self) -> str:
        return self.reference

    def reveal(self) -> str:
        """The secret, of a file without the line's end. Raises ConfigurationError where there is none."""
        kind, _, where = self.reference.partition(":")
        try:
            secret = os.environb.get(os.fsencode(where), b"") if kind == "env" else Path(where).read_bytes()
            text = secret.decode().rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(f"cannot read the secret in {self}", found=error.strerror, hint=_WHERE) from error
        except UnicodeDecodeError:  # which knows the secret, so that it must not be seen beside ours
            raise ConfigurationError(f"the secret in {self} is no text", expected="UTF-8") from None
        if not text:
            raise ConfigurationError(f"there is no secret in {self}", hint=_WHERE)
        return text


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
