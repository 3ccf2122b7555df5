"""The keys of a configuration that are patterns of names; errors that name the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sources.discovery import NamePattern
from sources.errors import ConfigurationError


@contextmanager
def at(where: str) -> Iterator[None]:
    """Add `where`, the table, to errors that do not name it."""
    try:
        yield
    except ConfigurationError as error:
        if error.problem.startswith(where):
            raise
        raise ConfigurationError(
            f"{where}: {error.problem}", expected=error.expected, found=error.found, hint=error.hint
        ) from error


def name_pattern(given: Mapping[str, object], include: str) -> NamePattern:
    """The pattern of the keys `include` and ``exclude``, lists of regular expressions. Raises ConfigurationError."""
    texts = {key: given[key] for key in (include, "exclude") if key in given}
    for key, value in texts.items():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigurationError(
                f"{key} is not usable", expected='a list of regular expressions: ["…"]', found=repr(value)
            )
    found = {key: tuple(map(str, value)) for key, value in texts.items() if isinstance(value, list)}
    for key, patterns in found.items():
        try:
            NamePattern(include=patterns)
        except ValueError as error:
            raise ConfigurationError(f"{key} is not usable", expected=error) from error
    return NamePattern(include=found.get(include, (".*",)), exclude=found.get("exclude", ()))
