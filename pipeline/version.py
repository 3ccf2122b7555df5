"""Which logtwin this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """As it was installed."""
    try:
        return version("logtwin")
    except PackageNotFoundError:
        return "unknown"  # runs from a source tree that is not installed
