"""The entry point of ``logtwin``. ``sql`` and ``report`` start without importing what only other verbs need."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the verb that the process was called with, and leave with its exit code."""
    heed_signals()
    verb = sys.argv[1] if len(sys.argv) > 1 else None
    if verb in ("sql", "report"):
        from pipeline.cli import query
        from pipeline.cli.options import run_alone

        run_alone(query.sql if verb == "sql" else query.report)
    else:
        from pipeline.cli.app import main as run

        run()


def heed_signals() -> None:
    """End this process at once, with a line, by a signal: by the little that is imported, then by what takes over."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup has it ignored
            signal.signal(number, _end)
    from pipeline.system import signals

    signals.take()


def _end(number: int, frame: object) -> None:
    os.write(2, f"ended by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
