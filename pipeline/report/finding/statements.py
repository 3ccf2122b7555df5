"""The questions about single records, in Spark's SQL. Columns have the names of the fields in `pipeline.report.facts`.

Names in braces are filled in: ``{most}`` bounds the rows, ``{width_us}`` is the length of a span in microseconds, where
a time belongs to the span that starts at the greatest multiple of it at or below; others stand for the answer of
another question. They are no parameter markers: Delta's parser does not know these.
"""

from __future__ import annotations

from typing import Final

# one row a topic: the driver puts them into their order
TOPICS: Final = """
SELECT topic, count(*) AS messages, coalesce(sum(octet_length(body)), 0) AS bytes
FROM messages
GROUP BY topic
UNION ALL
SELECT regexp_replace(log_id, '/[0-9]+$', ''), count(*), coalesce(sum(octet_length(value)), 0)
FROM kafka_log
GROUP BY 1
"""

GROUPS: Final = """
WITH of_topics AS (
  SELECT
    log_id,
    consumer_group,
    topic,
    count(*) AS queues,
    coalesce(sum(messages_behind), 0) AS messages_behind,
    CAST(max(seconds_behind) AS DOUBLE) AS seconds_behind
  FROM consumer_lag
  GROUP BY log_id, consumer_group, topic
  UNION ALL
  SELECT
    regexp_replace(log_id, '/[0-9]+$', ''),
    consumer_group,
    topic,
    count(*),
    if(count(group_offsets_behind) = count(*), sum(group_offsets_behind), NULL),
    NULL
  FROM kafka_lag
  WHERE consumer_group IS NOT NULL
  GROUP BY 1, consumer_group, topic
)
SELECT *, count(*) OVER () AS groups, count_if(messages_behind > 0) OVER () AS groups_behind
FROM of_topics
ORDER BY messages_behind DESC NULLS LAST, seconds_behind DESC NULLS LAST, log_id, consumer_group, topic
LIMIT {most}
"""

TRANSACTIONS: Final = """
SELECT
  state,
  log_id,
  coalesce(producer_group, '') AS source,
  topic,
  -- null where a year has not four digits: no axis has it
  IF(unix_micros(prepared_timestamp) BETWEEN 0 AND 253402300799999999, prepared_timestamp, NULL) AS at,
  false AS is_late
FROM transactions
"""

DELAYS: Final = """
WITH newest AS (
  SELECT log_id, max(last_store_timestamp) AS stored
  FROM ledger
  GROUP BY log_id
)
SELECT
  state,
  log_id,
  if(kind = 'level', concat('level ', level), kind) AS source,
  topic,
  due_timestamp AS at,
  coalesce(due_timestamp <= stored, false) AS is_late
FROM delayed_messages
LEFT JOIN newest USING (log_id)
"""

# one pass over what may be dear: a row for each state, and one for each place where something is pending
WAITING: Final = """
WITH counted AS (
  SELECT
    state, log_id, source, topic, grouping(topic) = 1 AS is_total,
    count(*) AS count, min(at) AS first, max(at) AS last
  FROM {waiting}
  GROUP BY GROUPING SETS ((state), (state, log_id, source, topic))
)
SELECT *, count_if(NOT is_total) OVER () AS places
FROM counted
WHERE is_total OR state = 'pending'
ORDER BY is_total DESC, first NULLS LAST, log_id, source, topic
LIMIT {most}
"""

SLICES: Final = """
SELECT timestamp_micros(unix_micros(at) - pmod(unix_micros(at), {width_us})) AS at, count(*) AS count, is_late
FROM {waiting}
WHERE state = 'pending' AND at IS NOT NULL
GROUP BY 1, 3
ORDER BY 1, 3
"""
