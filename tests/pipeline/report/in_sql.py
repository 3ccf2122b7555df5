"""What small tables tell a report, asked in SQL: another way than `pipeline.report.finding.ranges`, to compare with.

Names in braces are filled in, as in `pipeline.report.finding.statements`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipeline.report.drawing.palette import SERIES
from pipeline.report.facts import (
    Commits,
    Election,
    Flaw,
    FlawedRange,
    IncidentFacts,
    LogFacts,
    ReportedIncidents,
    Timeline,
    TopicFacts,
    TopTopics,
)
from pipeline.report.time_buckets import width_s
from sinks.views.definition import named_in, words_in
from sinks.views.registration import register

WAITS: Final = """
SELECT
  *,
  -- partitions come and go by the topic
  regexp_replace(log_id, '^(kafka/.+)/[0-9]+$', '$1') AS subject,
  -- what a backfill or a repair writes is old by nature
  CASE WHEN origin = 'stream' AND first_store_timestamp IS NOT NULL
    THEN greatest(0D, (unix_micros(committed_at) - unix_micros(first_store_timestamp)) / 1e6D)
  END AS oldest_waited_s,
  CASE WHEN origin = 'stream' AND last_store_timestamp IS NOT NULL
    THEN greatest(0D, (unix_micros(committed_at) - unix_micros(last_store_timestamp)) / 1e6D)
  END AS newest_waited_s
FROM ledger
"""
"""The ledger, with how long the oldest and the newest record of each range waited for its commit."""

COMPLETENESS: Final = """
SELECT
  log_id, records, bytes, `end`, complete_to, complete_through_timestamp AS complete_through, open_incidents
FROM completeness
ORDER BY log_id
"""

RANGES: Final = """
WITH ranges AS (
  SELECT
    log_id, start, first_store_timestamp, last_store_timestamp, committed_at, oldest_waited_s, newest_waited_s
  FROM {waits}
  UNION ALL
  -- what was lost before the first range stands here alone
  SELECT log_id, start, NULL, NULL, NULL, NULL, NULL
  FROM incidents
  WHERE action <> 'reported' AND state <> 'healed'
)
SELECT
  log_id,
  min(start) AS begin,
  min(first_store_timestamp) AS oldest_stored,
  max(last_store_timestamp) AS newest_stored,
  max(committed_at) AS last_committed,
  max_by(newest_waited_s, start) FILTER (WHERE newest_waited_s IS NOT NULL) AS newest_waited_s,
  percentile_approx(oldest_waited_s, 0.5) AS waited_p50_s,
  percentile_approx(oldest_waited_s, 0.99) AS waited_p99_s
FROM ranges
GROUP BY log_id
"""

COMMIT_TIMES: Final = """
SELECT min(committed_at) AS first, max(committed_at) AS last, count(DISTINCT subject) AS logs
FROM {waits}
"""

COMMITS: Final = """
WITH ranked AS (
  SELECT subject, row_number() OVER (ORDER BY sum(bytes) DESC, subject) AS rank
  FROM {waits}
  GROUP BY subject
)
SELECT
  if(rank <= {shown}, subject, NULL) AS log_id,
  timestamp_micros(unix_micros(committed_at) - pmod(unix_micros(committed_at), {width_us})) AS at,
  sum(records) AS records,
  sum(bytes) AS bytes,
  percentile_approx(oldest_waited_s, 0.5) AS waited_p50_s,
  percentile_approx(oldest_waited_s, 0.99) AS waited_p99_s
FROM {waits}
JOIN ranked USING (subject)
GROUP BY 1, 2
ORDER BY 2, 1
"""

FLAWS: Final = """
WITH
-- where a range begins or ends, of the ledger or of an incident: between two such points nothing changes
ranges AS (
  SELECT
    log_id, start, `end`, first_store_timestamp, last_store_timestamp,
    if(deleted_at IS NULL, 'live', 'deleted') AS kind, true AS is_of_log
  FROM ledger
  UNION ALL
  -- what verify reports may lie where the log has never been
  SELECT log_id, start, `end`, NULL, NULL, state, action <> 'reported'
  FROM incidents
  WHERE state <> 'healed'
),
edges AS (
  SELECT log_id, start AS at, 1 AS step, first_store_timestamp AS first_stored, NULL AS last_stored, kind, is_of_log
  FROM ranges
  UNION ALL
  SELECT log_id, `end`, -1, NULL, last_store_timestamp, kind, is_of_log
  FROM ranges
),
points AS (
  SELECT
    log_id,
    at,
    min(first_stored) AS first_stored,
    max(last_stored) AS last_stored,
    sum(if(kind = 'live', step, 0)) AS live,
    sum(if(kind = 'deleted', step, 0)) AS deleted,
    sum(if(kind = 'open', step, 0)) AS open,
    sum(if(kind = 'closed', step, 0)) AS closed,
    bool_or(is_of_log) AS is_of_log
  FROM edges
  GROUP BY log_id, at
),
segments AS (
  SELECT
    log_id,
    at AS start,
    lead(at) OVER along AS `end`,
    sum(live) OVER along AS live,
    CASE
      WHEN sum(open) OVER along > 0 THEN 'MISSING'
      WHEN sum(closed) OVER along > 0 THEN 'ACCEPTED'
      WHEN sum(deleted) OVER along > 0 THEN 'DELETED'
      ELSE 'MISSING'
    END AS flaw,
    -- the messages next to it; of deleted records their own
    if(sum(deleted) OVER along > 0, first_stored, max(last_stored) OVER along) AS stored_after,
    if(sum(deleted) OVER along > 0, lead(last_stored) OVER along, lead(first_stored) OVER along) AS stored_before,
    min(if(is_of_log, at, NULL)) OVER (PARTITION BY log_id) AS log_start,
    max(if(is_of_log, at, NULL)) OVER (PARTITION BY log_id) AS log_end
  FROM points
  WINDOW along AS (PARTITION BY log_id ORDER BY at)
),
holes AS (
  SELECT *, coalesce(lag(`end`) OVER along = start AND lag(flaw) OVER along = flaw, false) AS goes_on
  FROM segments
  WHERE live = 0 AND start >= log_start AND `end` <= log_end
  WINDOW along AS (PARTITION BY log_id ORDER BY start)
),
numbered AS (
  SELECT *, count_if(NOT goes_on) OVER (PARTITION BY log_id ORDER BY start) AS number
  FROM holes
),
whole_holes AS (
  SELECT
    log_id, flaw, min(start) AS start, max(`end`) AS `end`,
    min(stored_after) AS stored_after, max(stored_before) AS stored_before
  FROM numbered
  GROUP BY log_id, flaw, number
),
flawed AS (
  SELECT
    h.log_id, h.flaw, h.start, h.`end`, h.stored_after, h.stored_before,
    max_by(concat(i.condition, ': ', i.cause), i.state = 'open') AS why
  FROM whole_holes h
  LEFT JOIN incidents i
    ON i.log_id = h.log_id AND i.start < h.`end` AND i.`end` > h.start AND i.state <> 'healed' AND h.flaw <> 'DELETED'
  GROUP BY h.log_id, h.flaw, h.start, h.`end`, h.stored_after, h.stored_before
  UNION ALL
  -- an open incident over records that are there
  SELECT
    i.log_id, 'DOUBTFUL', i.start, i.`end`, min(l.first_store_timestamp), max(l.last_store_timestamp),
    concat(i.condition, ': ', i.cause)
  FROM (SELECT * FROM incidents WHERE state = 'open' ORDER BY detected_at DESC, log_id, id LIMIT 100) i
  JOIN ledger l
    ON l.log_id = i.log_id AND l.start < i.`end` AND l.`end` > i.start AND l.deleted_at IS NULL
  GROUP BY i.log_id, i.id, i.start, i.`end`, i.condition, i.cause
),
ranked AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY log_id, flaw ORDER BY `end` - start DESC, start) AS rank,
    count(*) OVER of_log AS all_of_log,
    sum(`end` - start) OVER of_log AS units_of_log
  FROM flawed
  WINDOW of_log AS (PARTITION BY log_id, flaw)
)
SELECT log_id, flaw, start, `end`, stored_after, stored_before, why, all_of_log, units_of_log
FROM ranked
WHERE rank <= {most}
ORDER BY log_id, start, flaw
"""

TOPICS: Final = """
WITH counted AS (
  SELECT topic, sum(messages) AS messages, sum(body_bytes) AS bytes
  FROM topic_stats
  GROUP BY topic
  UNION ALL
  SELECT regexp_replace(log_id, '/[0-9]+$', ''), count(*), coalesce(sum(octet_length(value)), 0)
  FROM kafka_log
  GROUP BY 1
)
SELECT
  topic,
  messages,
  bytes,
  count(*) OVER () AS topics,
  sum(messages) OVER () AS all_messages,
  sum(bytes) OVER () AS all_bytes
FROM counted
ORDER BY messages DESC, topic
LIMIT {most}
"""

ELECTIONS: Final = """
SELECT log_id, number, start, master, since
FROM epochs
WHERE epoch = (SELECT max(epoch) FROM epochs AS of_log WHERE of_log.log_id = epochs.log_id)
ORDER BY since DESC, log_id, number DESC
LIMIT {most}
"""

INCIDENTS: Final = """
SELECT
  log_id, id, condition, start, `end`, cause, action, detected_at, state, note,
  count(*) OVER () AS incidents,
  count_if(state = 'open') OVER () AS open
FROM incidents
ORDER BY state = 'open' DESC, detected_at DESC, log_id, id
LIMIT {most}
"""


def facts_in_sql(spark: SparkSession, warehouse: str) -> dict[str, Any]:
    """By the names of the fields of `Facts`, of the replica in `warehouse`."""
    session = spark.newSession()
    register(session, warehouse, views=named_in("completeness topic_stats"), tables=words_in(FLAWS, ELECTIONS, TOPICS))

    def rows(statement: str, **names: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = session.sql(statement, **names).toArrow().to_pylist()
        return found

    waits = session.sql(WAITS)
    ranges = {row["log_id"]: row for row in rows(RANGES, waits=waits)}
    incidents = rows(INCIDENTS, most=200)
    topics = rows(TOPICS, most=20)
    return {
        "logs": tuple(_each(LogFacts, [{**row, **ranges[row["log_id"]]} for row in rows(COMPLETENESS)])),
        "timeline": _timeline(rows, waits),
        "flaws": tuple(_each(FlawedRange, [row | {"flaw": Flaw[row["flaw"]]} for row in rows(FLAWS, most=50)])),
        "elections": tuple(_each(Election, rows(ELECTIONS, most=100))),
        "incidents": ReportedIncidents(
            tuple(_each(IncidentFacts, incidents)),
            *(incidents[0][name] if incidents else 0 for name in ("incidents", "open")),
        ),
        "topics": TopTopics(
            tuple(_each(TopicFacts, topics)),
            *(topics[0][name] if topics else 0 for name in ("topics", "all_messages", "all_bytes")),
        ),
    }


def _timeline(rows: Any, waits: DataFrame) -> Timeline:
    (bounds,) = rows(COMMIT_TIMES, waits=waits)
    if bounds["first"] is None:
        return Timeline(1.0)
    width = width_s(bounds["first"], bounds["last"], 120)
    shown = bounds["logs"] if bounds["logs"] <= len(SERIES) else len(SERIES) - 1
    return Timeline(width, tuple(_each(Commits, rows(COMMITS, width_us=width * 1_000_000, shown=shown, waits=waits))))


def _each(kind: Any, found: list[dict[str, Any]]) -> list[Any]:
    names = [field.name for field in fields(kind)]
    return [kind(**{name: row[name] for name in names}) for row in found]
