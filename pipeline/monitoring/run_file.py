"""The files in which runs say that they live, and what they replicate: one file a process.

    <warehouse>/_runs/<run id>.json                      a job
    <warehouse>/_runs/_reading/<log id>/<run id>.json    a verb that reads from a master that counts connections

Each is written by its own run alone, so nobody overwrites what another says. A start, or ``logtwin maintain``, removes
the files of ended runs whose logs others tell. Files in other folders are ignored: older versions wrote one for each
log, ``_runs/<log id>.json``.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pipeline.monitoring.run_state import Run, superseded
from sinks.storage.place import SPARE_BYTES, SmallFile
from sources.access.spread import side_by_side

log = logging.getLogger(__name__)


class RunFile:
    """The file of one run. Every method raises OSError if its storage cannot be reached, and nothing else."""

    def __init__(self, warehouse: str, run: str, folder: str = "") -> None:
        self._file = SmallFile(f"{_folder(warehouse, folder)}/{run}.json")

    @classmethod
    def below(cls, warehouse: str, folder: str = "") -> list[RunFile]:
        """All files of jobs, or of verbs, those in `folder` below; none if it does not exist."""
        names = SmallFile.names_in(_folder(warehouse, folder))
        return [cls(warehouse, name.removesuffix(".json"), folder) for name in names if name.endswith(".json")]

    def remove(self) -> None:
        """Remove the file; one that does not exist is no error."""
        self._file.remove()

    def read(self) -> Run | None:
        """What the run said last; None if there is no file, or this version cannot parse it."""
        content = self._file.read()
        try:
            return None if content is None else Run.from_json(content.decode())
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def write(self, run: Run) -> None:
        """Write atomically: a reader sees the old content or the new. On a full disk, over the old one."""
        self._file.write(run.as_json().encode(), spare_bytes=SPARE_BYTES)


def _folder(warehouse: str, folder: str) -> str:
    return f"{warehouse.rstrip('/')}/_runs/{folder}".rstrip("/")


def runs_of(warehouse: str) -> list[Run]:
    """What all jobs of a warehouse said last, those that have ended among them. Raises OSError."""
    return [one for one in side_by_side(RunFile.read, RunFile.below(warehouse)) if one is not None]


def runs_seen(warehouse: str) -> list[Run]:
    """`runs_of` for whoever only shows them: none, with a warning, if they cannot be read."""
    try:
        return runs_of(warehouse)
    except OSError as error:
        log.warning("cannot see which jobs run: %s", error)
        return []


def tidy(warehouse: str) -> None:
    """Remove the files of runs that are not live and whose logs others tell. Raises OSError.

    A live run that was taken for dead writes its file again.
    """
    for one in superseded(runs_of(warehouse), datetime.now(UTC)):
        RunFile(warehouse, one.writer.run).remove()
