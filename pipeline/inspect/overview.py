"""All that ``logtwin status`` says, and the page of ``logtwin report --serve``: of logs, typed tables, jobs, upkeep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline.config.configuration import Config
from pipeline.config.found import found_now
from pipeline.inspect.jobs import job_lines, live
from pipeline.inspect.status import statuses
from pipeline.inspect.typed_status import TypedStatus, status_lines, typed_statuses
from pipeline.inspect.unconfigured import unconfigured, unconfigured_words
from pipeline.monitoring.progress import Progress
from pipeline.monitoring.run_file import runs_seen
from pipeline.monitoring.run_state import Run
from pipeline.monitoring.upkeep import Upkeep, seen, sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there was at the time `at`. `jobs` are those that are alive, `unconfigured` logs that nobody asked for."""

    at: datetime
    logs: Sequence[Progress]
    tables: Sequence[TypedStatus]
    jobs: Sequence[Run]
    upkeep: Upkeep | None
    upkeep_every_s: float
    unconfigured: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """What is said beside the logs, for a person."""
        yield from job_lines(self.jobs)
        if self.tables:
            yield from status_lines(self.tables)
        if self.unconfigured:
            yield unconfigured_words(self.unconfigured)
        yield f"upkeep: {sentence(self.upkeep, self.upkeep_every_s, self.at)}"


def overview(given: Config) -> Overview:
    """Look at the tables, the files of the jobs, and the masters; `given` still has its patterns.

    Raises ReplicaError, StorageUnreachable.
    """
    config = found_now(given)
    runs = runs_seen(config.warehouse)
    logs = statuses(config, runs)
    tables = typed_statuses(config)
    now = datetime.now(UTC)
    return Overview(
        at=now,
        logs=logs,
        tables=tables,
        jobs=live(runs, now),
        upkeep=seen(given),
        upkeep_every_s=config.maintain.every_s,
        unconfigured=unconfigured(config),
    )
