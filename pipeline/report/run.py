"""What ``logtwin report`` does: ask the replica, and make the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.topics_held import held_topics
from pipeline.inspect.typed_status import TypedStatus, typed_statuses
from pipeline.report.facts import TypedFacts
from pipeline.report.page import page
from pipeline.report.queries import read_facts


def made_report(spark: SparkSession, config: Config, tell: Callable[[str], None] = lambda _: None) -> bytes:
    """The page; `tell` hears how far it is. Raises ReplicaError where there is no replica to read."""
    tables = tuple(map(_typed_facts, typed_statuses(config)))  # before the logs, which they are never ahead of
    return page(replace(read_facts(spark, config.warehouse, _configured(config), tell), tables=tables)).encode()


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
