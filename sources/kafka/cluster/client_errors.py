"""The translation of kafka-python's errors, and of the error codes in a broker's answers, into ours.

Codes, and whether a retry can help, are those of Kafka's protocol, as kafka-python lists them (kafka.errors).

What must hold: no secret is in the result. What a broker says about credentials is left out and replaced by a message
made of the settings, which hold no secrets.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, TypeVar

import kafka.errors as kafka_errors

from sources.access.security import is_refusal, no_tls
from sources.errors import (
    ConfigurationError,
    CorruptRecord,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
)
from sources.kafka.cluster.settings import Security

T = TypeVar("T")

NONE: Final[int] = kafka_errors.NoError.errno

ASKING: Final = (kafka_errors.KafkaError, OSError)
"""What kafka-python raises if a request fails."""

CONNECTING: Final = (*ASKING, ValueError)
"""What it raises if a connection fails: a ValueError if SCRAM does, and for an impossible host name."""

_AUTHENTICATION: Final = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
_TIMEOUTS: Final = (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError)
_TOO_OLD: Final = (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError)


def meaning(error: Exception, server: str, security: Security) -> LogtwinError:
    """Return our error for one of kafka-python's while connecting to `server` or asking it."""
    tls = _tls_error(error)
    if tls is not None and is_refusal(tls):
        return no_tls(tls, server)
    if isinstance(error, _AUTHENTICATION) or (security.with_sasl and type(error) is ValueError):
        return _not_authenticated(error, server, security)
    if isinstance(error, _TIMEOUTS):
        return MasterSilent(f"the broker at {server} does not answer", found=str(error), hint=_listener(security))
    if isinstance(error, _TOO_OLD):
        return ConfigurationError(
            f"the broker at {server} is too old", found=str(error), hint="Kafka 3.1 is the oldest that can be read."
        )
    if isinstance(error, kafka_errors.KafkaProtocolError):
        return ProtocolViolation(f"not what a broker says, from {server}", found=str(error), hint=_listener(security))
    if isinstance(error, kafka_errors.BrokerResponseError):
        return refusal(error.errno, f"at {server}")
    return MasterUnreachable(f"no connection to {server}, or it broke", found=str(error), hint=_listener(security))


_NOBODY: Final = ("ECONNREFUSED", "DNS Resolution failure")
"""How kafka-python says that nothing was there to connect to."""


def is_nobody(error: LogtwinError) -> bool:
    """Whether the error says that nothing listens at the address, or that there is no such host."""
    return isinstance(error, MasterUnreachable) and any(word in (error.found or "") for word in _NOBODY)


def _tls_error(error: Exception) -> ssl.SSLError | None:
    """Find the TLS error that kafka-python wraps: for the handshake it is the context, later an argument."""
    wrapped = (error, error.__context__, *error.args)
    return next((one for one in wrapped if isinstance(one, ssl.SSLError)), None)


def _not_authenticated(error: Exception, server: str, security: Security) -> ConfigurationError:
    who = f"{security.mechanism} as the user in {security.username}, with the password in {security.password}"
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return ConfigurationError(
            f"{server} does not accept us", found=who, hint="Check that both are correct and current."
        )
    if isinstance(error, ValueError):
        return ConfigurationError(f"{server} does not prove that it knows our password", found=who)
    return ConfigurationError(
        f"{server} does not support this way to authenticate",
        found=str(security.mechanism),
        hint="Check the protocol of its listener, and sasl.enabled.mechanisms.",
    )


def _listener(security: Security) -> str:
    return f"Does the broker run, is its address right, and is the protocol of this listener {security.protocol}?"


def check_code(code: int, doing: str, *, offset: int | None = None) -> None:
    """Raise `refusal` unless `code` is none; `doing` is what was asked, for example "where topic t lies"."""
    if code != NONE:
        raise refusal(code, doing, offset=offset)


def refusal(code: int, doing: str, *, offset: int | None = None) -> LogtwinError:
    """Return the error for `code`.

    MasterRefused if a retry can help, perhaps after new metadata; ConfigurationError if a permission is missing;
    CorruptRecord if the broker cannot read its own log; ProtocolViolation for a code that makes no sense here.
    """
    kind = kafka_errors.for_code(code)
    facts: dict[str, Any] = {"offset": offset, "found": f"{kind.message} (error {code})"}
    if issubclass(kind, kafka_errors.AuthorizationError):
        hint = (
            "Grant our user READ, DESCRIBE and DESCRIBE_CONFIGS on the topic, READ and DESCRIBE on the group, "
            "DESCRIBE on the cluster."
        )
        return ConfigurationError(f"not allowed to ask {doing}", hint=hint, **facts)
    if kind is kafka_errors.CorruptRecordError:
        hint = "Read the partition's segment files with kafka-dump-log, and restore the broker from a replica."
        return CorruptRecord(f"the broker finds its own log corrupt, asked {doing}", hint=hint, **facts)
    if kind.retriable or kind is kafka_errors.UnknownError:
        return MasterRefused(f"the broker does not answer {doing}", **facts)
    return ProtocolViolation(f"the broker cannot answer {doing}", **facts)


def sound(found: T | LogtwinError) -> T:
    """Return `found`. Raises it if it is an error."""
    if isinstance(found, LogtwinError):
        raise found
    return found
