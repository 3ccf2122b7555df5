"""What ``logtwin report`` does: ask the replica, and write the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config import Config
from pipeline.report.facts import TypedFacts
from pipeline.report.page import page
from pipeline.report.queries import read_facts
from pipeline.topics_held import held_topics
from pipeline.typed_status import TypedStatus, typed_statuses
from pipeline.whole_file import replacing
from sources.errors import ConfigurationError


def write_report(spark: SparkSession, config: Config, output: Path) -> None:
    """Raises ReplicaError where there is no replica to read, ConfigurationError where `output` cannot be written."""
    tables = tuple(map(_typed_facts, typed_statuses(config)))  # before the logs, which they are never ahead of
    made = page(replace(read_facts(spark, config.warehouse, _configured(config)), tables=tables))
    try:
        with replacing(output) as file:
            file.write(made.encode())
    except OSError as error:
        raise _not_written(output, error.strerror) from error


def _typed_facts(one: TypedStatus) -> TypedFacts:
    return TypedFacts(
        name=one.name,
        rows=one.rows,
        unfit=one.unfit,
        columns=len(one.columns),
        logs=len(one.logs),
        behind=sum(place.behind > 0 for place in one.logs),
        complete_through=one.complete_through,
    )


def _configured(config: Config) -> list[str]:
    """Every log, every partition of a topic, and every topic that was not begun."""
    topics = [[str(log_id) for log_id, _ in one.partitions()] or [one.options.id] for one in held_topics(config)]
    return [*(log.id for log in config.logs), *(name for names in topics for name in names)]


def check_folder(output: Path) -> None:
    """Raises ConfigurationError where the folder of `output` is not there: before minutes are spent on the queries."""
    if not output.absolute().parent.is_dir():
        raise _not_written(output, "there is no such folder")


def _not_written(output: Path, found: str | None) -> ConfigurationError:
    return ConfigurationError(
        f"the report {output} cannot be written",
        expected="a file in a folder that is there",
        found=found,
        hint="Give another one with --output.",
    )
