"""What one module said: a process of tests has threads of other tests, and what they say is in `caplog`, too."""

from __future__ import annotations

import logging

import pytest


def said_by(module: str, caplog: pytest.LogCaptureFixture, least: int = logging.INFO) -> list[str]:
    """Its messages, of this level or a higher one."""
    return [record.getMessage() for record in caplog.records if record.name == module and record.levelno >= least]
