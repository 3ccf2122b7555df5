CREATE VIEW kafka_lag (
  log_id COMMENT 'which log: kafka/<cluster>/<topic>/<partition>',
  topic COMMENT 'topic of the partition',
  partition COMMENT 'partition of the topic',
  position COMMENT 'next offset that the replica needs; null where nothing of the partition was committed yet',
  committed_at COMMENT 'when the replica last committed something of it, by the clock of the driver',
  newest_timestamp COMMENT 'newest timestamp of a record that was committed',
  leader COMMENT 'broker that leads it; null while none does, or before metadata was fetched, as the next three',
  log_start COMMENT 'offset below which the master has deleted all',
  last_stable COMMENT 'offset below which no transaction is open; null where it was seen before position was reached',
  log_end COMMENT 'end at the master: the offset of its next record; null as last_stable',
  seen_from COMMENT 'when the master was first seen like this; no fetch since has found a change. Clock of the driver',
  offsets_behind COMMENT 'offsets from position, or else log_start, to log_end; null without it',
  offsets_waiting COMMENT 'of these, how many are behind last_stable: unread as long as a transaction is open',
  consumer_group COMMENT 'group that the replica acknowledges with; null where it does not',
  group_offset COMMENT 'offset that this group has committed; null without one, and where it was seen before position was reached',
  group_offsets_behind COMMENT 'offsets from group_offset, or else log_start, to log_end; null where one of them was seen too early'
)
COMMENT 'how far the replica, and the group it acknowledges with, are behind in each partition of each Kafka topic'
AS
WITH committed AS (
  SELECT log_id, epoch, `end`, committed_at, last_store_timestamp
  FROM ledger
  WHERE startswith(log_id, 'kafka/')
  UNION ALL
  -- what a commit has passed as lost is not in the ledger
  SELECT log_id, epoch, `end`, NULL, NULL
  FROM incidents
  WHERE startswith(log_id, 'kafka/') AND action IN ('skipped', 'quarantined')
),
replica AS (
  SELECT
    log_id,
    max_by(`end`, struct(epoch, `end`)) AS position,
    max(committed_at) AS committed_at,
    max(last_store_timestamp) AS newest_timestamp
  FROM committed
  GROUP BY log_id
),
master AS (
  SELECT
    concat(log_id, '/', partition) AS log_id,
    leader,
    log_start,
    last_stable,
    log_end,
    valid_from AS seen_from,
    consumer_group,
    group_offset
  FROM kafka_partitions
  WHERE is_current
),
-- What was fetched before the replica came to where it stands says nothing of now. A fetch that changes nothing leaves
-- no trace, so that is known of an end below the position, and of a group below it that nobody has looked at since.
both AS (
  SELECT
    *,
    coalesce(log_end < position, FALSE) AS is_older,
    coalesce(
      coalesce(group_offset, log_start) < position AND (log_end < position OR seen_from < committed_at), FALSE
    ) AS is_group_older
  FROM replica
  FULL JOIN master USING (log_id)
),
known AS (
  SELECT
    * EXCEPT (last_stable, log_end, group_offset),
    CASE WHEN NOT is_older THEN last_stable END AS last_stable,
    CASE WHEN NOT is_older THEN log_end END AS log_end,
    CASE WHEN NOT is_group_older THEN group_offset END AS group_offset
  FROM both
)
-- Where something is null, least() and greatest() pass over it, and minus does not.
SELECT
  log_id,
  split_part(log_id, '/', 3),
  try_cast(split_part(log_id, '/', 4) AS INT),
  position,
  committed_at,
  newest_timestamp,
  leader,
  log_start,
  last_stable,
  log_end,
  seen_from,
  log_end - coalesce(position, log_start),
  log_end - least(log_end, greatest(last_stable, position)),
  consumer_group,
  group_offset,
  CASE
    WHEN consumer_group IS NOT NULL AND NOT is_group_older THEN log_end - least(log_end, coalesce(group_offset, log_start))
  END
FROM known
