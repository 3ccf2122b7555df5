"""TLS as an operator configures it, as the context that connections are made with."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from sources.errors import ConfigurationError
from sources.kafka.settings import Security


def tls_context(security: Security) -> ssl.SSLContext:
    """The broker's certificate is always checked. Raises ConfigurationError naming the file that is at fault.

    With a `ca_file` nothing else is trusted, not what the system trusts either.
    """
    with _reading("certificates", security.ca_file):
        context = ssl.create_default_context(cafile=security.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    if security.certificate_file is not None:
        password = security.key_password.reveal() if security.key_password else ""  # None would ask at the terminal
        with _reading("our certificate and its key", security.certificate_file, security.key_file):
            context.load_cert_chain(security.certificate_file, security.key_file, password)
    return context


@contextmanager
def _reading(what: str, *files: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # an SSLError is one, too
        where = " and ".join(file for file in files if file)
        raise ConfigurationError(
            f"cannot use {what} in {where}",
            expected="PEM",
            found=error.strerror or str(error),
            hint="Of a key under a password, is the password right?" if isinstance(error, ssl.SSLError) else None,
        ) from error
