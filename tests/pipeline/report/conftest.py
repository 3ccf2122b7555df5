"""Fixtures that several modules of this folder share."""

from __future__ import annotations

from tests.sinks.views.conftest import replica

__all__ = ["replica"]
