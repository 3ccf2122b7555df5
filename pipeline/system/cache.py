"""The cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder for files that can be made again: ``$LOGTWIN_CACHE``, or ``logtwin`` in the user's cache folder."""
    chosen = os.environ.get("LOGTWIN_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logtwin"
