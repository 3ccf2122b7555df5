"""Run a benchmark in a process of its own: it may have one Spark session, and a failure does not end other benchmarks.

It has a folder of its own, which is removed when the process has ended, however it ended: also by SIGTERM, as from
`timeout`, which ends both processes, and those that they have started, by an exception. Each figure is sent as JSON as
soon as it is measured, so that figures before a failure are not lost. A figure that JSON cannot hold is a failure of
its benchmark and not of the results.
"""

from __future__ import annotations

import json
import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection

from bench.contest import Figure, Settings
from bench.results import figure_as_json, figure_from_json
from bench.scratch import scratch_folder
from pipeline.system.signals import unwinding

_SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads, or with a JVM, would not work
_FIGURE, _ERROR = "figure", "error"


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    """The figures that were measured; `error` says why some are missing, or is None."""

    figures: tuple[Figure, ...]
    error: str | None


def run(module: str, *, rounds: int, scale: float) -> BenchOutcome:
    """Call the `measure` of `module` in a new process, with an empty folder. Raises SystemExit when asked to end."""
    with scratch_folder() as folder, unwinding():
        receiver, sender = _SPAWN.Pipe(duplex=False)
        settings = Settings(folder=folder, rounds=rounds, scale=scale)
        process = _SPAWN.Process(target=_measure, args=(module, settings, sender))
        process.start()
        sender.close()  # so that the receiver ends with the process
        try:
            received = list(_received(receiver))
        except (SystemExit, KeyboardInterrupt):
            process.terminate()
            raise
        finally:
            process.join()
        return _outcome(received, process.exitcode)


def _received(receiver: Connection) -> Iterator[tuple[str, str]]:
    with receiver:
        while True:
            try:
                yield receiver.recv()
            except EOFError:
                return


def _outcome(received: Sequence[tuple[str, str]], exit_code: int | None) -> BenchOutcome:
    figures = tuple(figure_from_json(json.loads(text)) for kind, text in received if kind == _FIGURE)
    error = next((text for kind, text in received if kind == _ERROR), None)
    if error is None and exit_code != 0:
        error = f"its process ended with exit code {exit_code}"
    if error is None and not figures:
        error = "it measured nothing"
    return BenchOutcome(figures, error)


def _measure(module: str, settings: Settings, sender: Connection) -> None:
    """Run a benchmark, in the new process. Whatever it raises is sent to the parent process in one line."""
    try:
        with unwinding():
            for figure in import_module(module).measure(settings):
                sender.send((_FIGURE, json.dumps(figure_as_json(figure), allow_nan=False)))
    except BaseException as error:  # noqa: BLE001 - whatever a work raises is the end of that work alone
        traceback.print_exc()
        sender.send((_ERROR, _in_one_line(error)))
        raise SystemExit(1) from None
    finally:
        sender.close()


def _in_one_line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:500]}" if said else type(error).__name__
