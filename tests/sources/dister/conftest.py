"""Fixtures of the tests of dister's logs."""

import pytest

from sources.dister import entry_log


@pytest.fixture(autouse=True)
def _nobody_rewrites_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no file that is missing is waited for."""
    monkeypatch.setattr(entry_log, "SETTLE_S", 0.0)
