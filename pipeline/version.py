"""The version of the installed logtwin."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The version of the installed package, or ``unknown``."""
    try:
        return version("logtwin")
    except PackageNotFoundError:
        return "unknown"  # runs from a source tree that is not installed
