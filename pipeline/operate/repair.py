"""``logtwin repair``: takes each log back to its master, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.config.found import found_now
from pipeline.inspect.selection import ConfiguredLog, subjects
from pipeline.monitoring.display import size
from pipeline.monitoring.run_state import check_free, runs_of
from pipeline.monitoring.single_connection import alone_at
from pipeline.operate.backfill import Wanted, result_lines, run_backfill
from pipeline.spark.session import session_for
from sinks.healing.repair import Repair, Repaired, WayBack
from sinks.history.key_values import KeyedStateFollower
from sources.errors import ConfigurationError, LogtwinError

log = logging.getLogger(__name__)


def repair_logs(
    config: Config,
    where: str,
    *,
    log_id: str | None = None,
    accept_master: bool,
    take_over: bool,
    dry_run: bool,
) -> Iterator[str]:
    """Repair the log `log_id`, or every log of `config`, which was read from `where`. Yields lines on what was done.

    A log that cannot be repaired does not hold up the others: the first error is raised at the end. Raises
    ConfigurationError if several masters would be accepted at once.
    """
    spark = session_for(config, writes=not dry_run)
    found = list(subjects(found_now(config), log_id))
    if accept_master and len({one.run_id for one in found}) > 1:
        raise ConfigurationError(
            f"{where}: --accept-master for {len(found)} logs at once",
            expected="--log with the one whose master is right",
            found="every log of the configuration",
        )
    first: LogtwinError | None = None
    for subject in found:
        try:
            if not take_over:
                _check_idle(config.warehouse, subject.run_id)
            done = _look if dry_run else _repair
            with alone_at(config.warehouse, subject.open(), "repair", take_over=take_over):
                yield from done(spark, config, subject, accept_master=accept_master)
        except LogtwinError as error:
            if first is not None:
                log.error("%s", error)
            first = first or error
    if first is not None:
        raise first


def _look(spark: SparkSession, config: Config, subject: ConfiguredLog, *, accept_master: bool) -> Iterator[str]:
    found = _opened(spark, config, subject).look(accept_master=accept_master)
    yield from (f"{subject.log_id}: {line}" for line in lines(found, dry_run=True))


def _repair(spark: SparkSession, config: Config, subject: ConfiguredLog, *, accept_master: bool) -> Iterator[str]:
    """Repair one log. Damaged ranges become holes, which are then filled from the master as far as it has them."""
    done = _opened(spark, config, subject).run(accept_master=accept_master)
    yield from (f"{subject.log_id}: {line}" for line in lines(done, dry_run=False))
    for hole in done.missing:
        filled = run_backfill(spark, config, subject, Wanted(hole.start, hole.end), is_alone=True)
        yield from result_lines(filled, dry_run=False)
    if done.position is not None:
        KeyedStateFollower(spark, config.warehouse, subject.open()).follow()


def _opened(spark: SparkSession, config: Config, subject: ConfiguredLog) -> Repair:
    master = subject.open_any()
    master.check()
    return Repair(spark, config.warehouse, master)


def _check_idle(warehouse: str, log_id: str) -> None:
    """Raise AlreadyRunning if a job replicates the log. An unreadable file hinders nothing: the table is the fence."""
    try:
        runs = runs_of(warehouse)
    except OSError as error:
        log.warning("%s: cannot tell whether a job replicates this log: %s", log_id, error)
        return
    for found in (run.of(log_id) for run in runs):
        if found is not None:
            check_free(found, log_id, datetime.now(UTC), verb="repair")


def lines(found: Repaired, *, dry_run: bool) -> Iterator[str]:
    """Say for a person, in lines, what a repair did, or would do."""
    if found.position is None:
        yield "nothing was replicated yet, so there is nothing to repair"
        return
    if found.resumed is not None:
        would = "has to be finished first" if dry_run else "was finished"
        yield f"an unfinished repair {would}: back to {found.resumed.to}, epoch {found.resumed.epoch}"
    if found.taken_out:
        ranges = ", ".join(map(str, found.taken_out))
        yield f"damaged in the replica itself, {'to be' if dry_run else 'and'} taken out: {ranges}"
    for one in found.others:
        ranges, would = ", ".join(map(str, one.ranges)), "also to be taken out" if dry_run else "also taken out"
        yield f"{would}: {one.log_id} {ranges}: run logtwin repair --log {one.log_id}, or logtwin backfill"
    if found.back is not None:
        yield from _way_back(found.back, dry_run=dry_run)
    if found.missing:
        ranges = ", ".join(map(str, found.missing))
        yield f"{'missing, to be' if dry_run else 'missing, now'} read from the master again: {ranges}"
    if found.healed:
        yield f"{found.healed} incident{'s' if found.healed > 1 else ''} healed: both sides are the same again"
    if found.back is not None and not dry_run:
        yield f"logtwin replicate goes on at {found.position}"
    elif found.back is None and not (found.taken_out or found.others or (dry_run and found.resumed)):
        yield f"nothing that can be compared differs from the master, up to {found.position}"


def _way_back(back: WayBack, *, dry_run: bool) -> Iterator[str]:
    yield f"{back.found.condition.value}: {back.found.cause}"
    go = "would go" if dry_run else "went"
    gone = f"{back.records:,} record{'' if back.records == 1 else 's'}, {size(back.bytes)}"
    yield f"{go} back from {back.since} to {back.found.common}; {gone}, {go} to the table removed"
