"""Fixtures that several modules of this folder share."""

from tests.sinks.views.conftest import replica

__all__ = ["replica"]
