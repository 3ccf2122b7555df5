"""A folder for as long as something is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Empty at first; it goes with all that is in it."""
    # A JVM whose Python was killed may still write while it ends.
    with tempfile.TemporaryDirectory(prefix="logtwin-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
