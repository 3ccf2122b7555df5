"""What one module logged, for a process of tests has threads of other tests; and what is printed of a text."""

import io
import logging

import pytest
from rich.console import Console


def said_by(module: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Its messages, from INFO on."""
    return [one.getMessage() for one in caplog.records if one.name == module and one.levelno >= logging.INFO]


def printed(what: object, width: int = 300) -> str:
    """In columns, so many of them."""
    stream = io.StringIO()
    Console(file=stream, width=width).print(what)
    return stream.getvalue()
