"""``logtwin report``: asks the replica, and makes the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.config.found import found_now
from pipeline.inspect.overview import unconfigured
from pipeline.inspect.selection import held_topics
from pipeline.inspect.typed_status import typed_statuses
from pipeline.monitoring.run_state import Run, runs_seen, told_together
from pipeline.monitoring.upkeep import seen, sentence
from pipeline.report.facts import RunFacts, subjects
from pipeline.report.finding.queries import read_facts
from pipeline.report.page import page


def made_report(
    config: Config, session: Callable[[int], SparkSession], tell: Callable[[str], None] = lambda _: None
) -> bytes:
    """The page as bytes; `session` and `tell` are those of `read_facts`. Raises ReplicaError if there is no replica."""
    upkeep = sentence(seen(config), config.maintain.every_s, datetime.now(UTC))
    config = found_now(config)
    tables = tuple(typed_statuses(config))  # read before the logs: they are never ahead of them
    facts = read_facts(config.warehouse, _configured(config), session, tell)
    jobs = runs_seen(config.warehouse)
    found = (_run_facts(jobs, one.name, facts.made_at) for one in subjects(facts.logs))
    runs = tuple(one for one in found if one is not None)
    return page(replace(facts, tables=tables, runs=runs, upkeep=upkeep, unconfigured=unconfigured(config))).encode()


def _run_facts(jobs: Iterable[Run], subject: str, now: datetime) -> RunFacts | None:
    """The facts that `jobs` published of a log or topic; None if there are none."""
    run = told_together(jobs, subject, now)
    if run is None:
        return None
    return RunFacts(
        subject=subject,
        is_live=run.is_live(now),
        phase=run.phase.value,
        at=run.updated_at,
        lag_s=run.facts.get("lag_s"),
        error=run.facts.get("last_error"),
    )


def _configured(config: Config) -> list[str]:
    """The ids of all logs, all partitions of topics, and all topics without partitions yet."""
    topics = [[str(log_id) for log_id, _ in one.partitions()] or [one.options.id] for one in held_topics(config)]
    return [*(log.id for log in config.logs), *(name for names in topics for name in names)]
