"""Where to find secrets. What must hold: a secret is named, never kept.

Options and everything made of them travel to tasks and into Spark's plans, logs and errors. In all of these a secret is
only the place where it can be found ("env:NAME", "file:PATH"). It is read there when a connection is made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sources.errors import ConfigurationError

_WHERE: Final = "Set the variable, or write the file, where the tasks run, too."


@dataclass(frozen=True, slots=True)
class Secret:
    """The place of a secret: an environment variable, or a file that holds nothing else.

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
    """Return the place given for `key`. Raises ConfigurationError that names the key, but never what was written."""
    try:
        return Secret(str(given))
    except ConfigurationError as error:
        raise ConfigurationError(f"{key} is {error.problem}", expected=error.expected, hint=error.hint) from error
