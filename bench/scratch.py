"""A temporary folder for measurements."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new, empty folder, which is removed with its contents at the end."""
    # A JVM whose Python was killed may still write while it ends.
    with tempfile.TemporaryDirectory(prefix="logtwin-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
