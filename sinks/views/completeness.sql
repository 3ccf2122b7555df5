CREATE VIEW completeness (
  log_id COMMENT 'which log, for example rocketmq/broker-a or kafka/prod/orders/0, a partition',
  complete_from COMMENT 'first offset that the table log, or kafka_log, has of it',
  complete_to COMMENT 'from complete_from every offset below this one is there; it is end where there is no gap behind',
  complete_through_timestamp COMMENT 'newest store_timestamp below complete_to, clock of the master; Kafka: timestamp',
  end COMMENT 'how far the log was replicated: the first offset that is neither there nor lost',
  records COMMENT 'records that are there, blanks included',
  bytes COMMENT 'bytes of the log of the master that are there; Kafka: of its records, unpacked',
  gaps COMMENT 'ranges that are missing, neither before the beginning of the replica nor deleted by its own retention',
  gap_units COMMENT 'offsets in these ranges: RocketMQ bytes; dister ids, Kafka offsets: some never had a record',
  missing COMMENT 'these ranges in order, half-open: array of start and end',
  open_incidents COMMENT 'incidents that are neither healed nor closed'
)
COMMENT 'through which offset and which time of the master each log is complete, and what is missing'
AS
WITH
-- what commits have passed as lost, or repairs have taken out, below the position: also beside the ranges of the ledger
lost AS (
  SELECT
    log_id,
    min(start) FILTER (WHERE action <> 'reported' AND state <> 'healed') AS first,
    max(`end`) FILTER (WHERE action <> 'reported' AND state <> 'healed') AS last,
    count_if(state = 'open') AS open_incidents
  FROM incidents
  GROUP BY log_id
),
bounds AS (
  SELECT
    log_id,
    least(min(start), min(first)) AS start,
    greatest(max(`end`), max(last)) AS `end`,
    coalesce(max(open_incidents), 0) AS open_incidents
  FROM ledger
  LEFT JOIN lost USING (log_id)
  GROUP BY log_id
),
-- deleted ranges count here: who deleted them knows
accounted AS (
  SELECT log_id, start, `end` FROM ledger
  UNION ALL
  SELECT log_id, start, start FROM bounds
  UNION ALL
  SELECT log_id, `end`, `end` FROM bounds
),
gap_edges AS (
  SELECT
    log_id,
    max(`end`) OVER (
      PARTITION BY log_id ORDER BY start, `end` ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS start,
    start AS `end`
  FROM accounted
),
gaps AS (
  SELECT
    log_id,
    count(*) AS gaps,
    sum(`end` - start) AS gap_units,
    array_sort(collect_list(named_struct('start', start, 'end', `end`))) AS missing
  FROM gap_edges
  WHERE start < `end`
  GROUP BY log_id
),
present AS (
  SELECT
    log_id, start, `end`, records, bytes, last_store_timestamp,
    start > max(`end`) OVER (
      PARTITION BY log_id ORDER BY start, `end` ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS is_apart
  FROM ledger
  WHERE deleted_at IS NULL
),
numbered AS (
  SELECT *, count_if(is_apart) OVER (PARTITION BY log_id ORDER BY start, `end` ROWS UNBOUNDED PRECEDING) AS gaps_before
  FROM present
),
whole AS (
  SELECT
    log_id,
    min(start) AS complete_from,
    max(`end`) FILTER (WHERE gaps_before = 0) AS complete_to,
    max(last_store_timestamp) FILTER (WHERE gaps_before = 0) AS complete_through_timestamp,
    sum(records) AS records,
    sum(bytes) AS bytes
  FROM numbered
  GROUP BY log_id
)
SELECT
  log_id,
  complete_from,
  complete_to,
  complete_through_timestamp,
  bounds.`end`,
  coalesce(records, 0),
  coalesce(bytes, 0),
  coalesce(gaps, 0),
  coalesce(gap_units, 0),
  coalesce(missing, array()),
  open_incidents
FROM bounds
LEFT JOIN whole USING (log_id)
LEFT JOIN gaps USING (log_id)
