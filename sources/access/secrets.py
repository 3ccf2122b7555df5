"""Where secrets are found. What must hold: a secret is named, never kept.

Options and what is made of them travel to tasks, into Spark's plans, logs and errors; in all of them a secret is the
place where it is found ("env:NAME", "file:PATH"), and it is read there when a connection is made.
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


def place_of(given: object, key: str) -> Secret:
    """What an operator wrote for `key`. Raises ConfigurationError naming the key, and never what was written."""
    try:
        return Secret(str(given))
    except ConfigurationError as error:
        raise ConfigurationError(f"{key} is {error.problem}", expected=error.expected, hint=error.hint) from error
