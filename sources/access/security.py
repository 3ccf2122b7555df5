"""Secrets and TLS, as an operator configures them. What must hold: a secret is named, never kept.

Options and everything made of them travel to tasks and into Spark's plans, logs and errors. In all of these a secret is
only its address ("env:NAME", "file:PATH"), where it is read when a connection is made.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from sources.errors import ConfigurationError

_WHERE: Final = "Set the variable, or write the file, where the tasks run, too."


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: an environment variable, or a file that holds nothing else.

    Raises ConfigurationError if `reference` is neither, without repeating it: it could be the secret itself.
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
        """Return the secret, without a trailing line end. Raises ConfigurationError if there is none."""
        kind, _, where = self.reference.partition(":")
        try:
            secret = os.environb.get(os.fsencode(where), b"") if kind == "env" else Path(where).read_bytes()
            text = secret.decode().rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(f"cannot read the secret in {self}", found=error.strerror, hint=_WHERE) from error
        except UnicodeDecodeError:  # it holds the secret, so it must not be chained
            raise ConfigurationError(f"the secret in {self} is no text", expected="UTF-8") from None
        if not text:
            raise ConfigurationError(f"there is no secret in {self}", hint=_WHERE)
        return text


def place_of(given: object, key: str) -> Secret:
    """Return the secret given for `key`. Raises ConfigurationError that names the key, but never what was written."""
    try:
        return Secret(str(given))
    except ConfigurationError as error:
        raise ConfigurationError(f"{key} is {error.problem}", expected=error.expected, hint=error.hint) from error


_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The operator's options for TLS. All files are PEM.

    `ca_file` holds the certificates that sign the server's (None: those that the system trusts). `certificate_file` and
    `key_file` are our own, for servers that ask for one; the key may be in the same file as the certificate.

    Raises ConfigurationError for a key without its certificate.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    check_hostname: bool = True

    def __post_init__(self) -> None:
        for name in ("key_file", "key_password"):
            if getattr(self, name) is not None and self.certificate_file is None:
                raise ConfigurationError(
                    f"{name} of TLS has no effect", hint="Remove it, or give the certificate_file it belongs to."
                )

    def given(self) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        options = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return [f"{name} = false" if value is False else name for name, value in options.items()]


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Make a context that always checks the server's certificate. Raises ConfigurationError naming the faulty file.

    With a `ca_file` nothing else is trusted, not even what the system trusts.
    """
    with _reading("certificates", tls.ca_file):
        context = ssl.create_default_context(cafile=tls.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_hostname
    if tls.certificate_file is not None:
        password = tls.key_password.reveal() if tls.key_password else ""  # None would ask at the terminal
        with _reading("our certificate and its key", tls.certificate_file, tls.key_file):
            context.load_cert_chain(tls.certificate_file, tls.key_file, password)
    return context


def is_refusal(error: BaseException | None) -> bool:
    """Whether TLS itself failed, so that no retry helps. A server that just closes may be stopping, or has no TLS."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN_OFF)


def no_tls(error: BaseException, server: object) -> ConfigurationError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"the certificate of {server} is not trusted",
            found=error.verify_message,
            hint="Give the file of those who signed it as ca_file, and name the servers as the certificate does.",
        )
    return ConfigurationError(
        f"no TLS with {server}",
        found=str(error),
        hint="Does this listener speak TLS, and does it ask for a client's certificate (certificate_file)?",
    )


@contextmanager
def _reading(what: str, *files: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # includes SSLError
        where = " and ".join(file for file in files if file)
        raise ConfigurationError(
            f"cannot use {what} in {where}",
            expected="PEM",
            found=error.strerror or str(error),
            hint="If the key has a password, is it correct?" if isinstance(error, ssl.SSLError) else None,
        ) from error
