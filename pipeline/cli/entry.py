"""The entry point of ``logtwin``. ``sql`` and ``report`` start without importing what only other verbs need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the verb that the process was called with, and leave with its exit code."""
    verb = sys.argv[1:2]
    if verb == ["sql"]:
        from pipeline.cli.sql import main as run
    elif verb == ["report"]:
        from pipeline.cli.report import main as run
    else:
        from pipeline.cli.app import main as run
    run()
