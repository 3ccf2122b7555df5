"""The entry point of ``logtwin``. ``sql`` and ``report`` start without importing what only other verbs need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the verb that the process was called with, and leave with its exit code."""
    verb = sys.argv[1] if len(sys.argv) > 1 else None
    if verb in ("sql", "report"):
        from pipeline.cli import query
        from pipeline.cli.options import run_alone

        run_alone(query.sql if verb == "sql" else query.report)
    else:
        from pipeline.cli.app import main as run

        run()
