"""Packages that only a part of logtwin needs: which extra of pyproject.toml brings each, and the error without it.

Whoever replicates RocketMQ or dister installs logtwin alone, and so do Spark's workers. What speaks to Kafka, draws the
report or prompts for SQL is imported only where that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from sources.errors import ConfigurationError

EXTRA_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka",
        "crc32c": "kafka",
        "plotly": "report",
        "jinja2": "report",
        "prompt_toolkit": "sql",
        "pygments": "sql",
    }
)
"""Package -> extra."""

_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


@contextmanager
def naming_extras() -> Iterator[None]:
    """Raises ConfigurationError where a package of an extra is not there, with the way to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        found = missing_package(f"ModuleNotFoundError: {error}")
        if found is None:
            raise
        raise found from error


def missing_package(trace: str) -> ConfigurationError | None:
    """Return the same error for a traceback, all that Spark hands over of a worker's failure; None for any other."""
    for package in reversed(_MISSING.findall(trace)):
        if package in EXTRA_OF:
            return ConfigurationError(
                f"the Python package {package} is not installed",
                expected=f"the packages of logtwin's extra {EXTRA_OF[package]}, on each machine that needs them",
                hint=f"Install them with logtwin's wheel: pip install 'logtwin-….whl[{EXTRA_OF[package]}]'.",
            )
    return None
