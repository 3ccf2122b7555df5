CREATE VIEW consumer_lag (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  consumer_group COMMENT 'consumer group',
  topic COMMENT 'topic that it has offsets in, its retry topic too; no topics that the broker keeps for itself',
  queue_id COMMENT 'queue of the topic',
  end_queue_offset COMMENT 'one past the last entry of the queue',
  next_queue_offset COMMENT 'queue_offset of the message that the group consumes next; null where it has none here yet',
  messages_behind COMMENT 'entries that it has not consumed; from 0 on where it has no offset yet, as the broker counts',
  seconds_behind COMMENT 'from when the next message was stored to the newest record of the log; 0 when not behind',
  last_consumed_timestamp COMMENT 'when the message before next_queue_offset was stored; null where the log lacks it'
)
COMMENT 'how far each consumer group is behind in each queue'
AS
WITH committed AS (
  SELECT log_id, consumer_group, topic, queue_id, max(next_queue_offset) AS next_queue_offset
  FROM consumer_offsets
  LEFT ANTI JOIN (SELECT DISTINCT log_id, topic FROM records WHERE is_system) USING (log_id, topic)
  WHERE is_current
  GROUP BY log_id, consumer_group, topic, queue_id
),
-- What is named twice Spark makes twice: so queues are put together and taken apart again.
of_topics AS (
  SELECT
    log_id, consumer_group, topic,
    map_from_entries(collect_list(named_struct('queue_id', queue_id, 'next', next_queue_offset))) AS next_queue_offsets
  FROM committed
  GROUP BY log_id, consumer_group, topic
),
-- a group has to read every queue of a topic, also one that it has not committed an offset of
progress AS (
  SELECT log_id, consumer_group, topic, queue_id, next_queue_offsets[queue_id] AS next_queue_offset
  FROM of_topics
  LEFT JOIN (SELECT log_id, topic, read_queue_nums FROM topics WHERE is_current AND read_queue_nums > 0)
    USING (log_id, topic)
  LATERAL VIEW explode(
    array_union(map_keys(next_queue_offsets), coalesce(sequence(0, read_queue_nums - 1), array()))
  ) queues AS queue_id
),
-- an entry holds the queue offsets [first, past)
entries AS (
  SELECT log_id, topic, queue_id, queue_offset AS first, queue_offset + 1 AS past, store_timestamp
  FROM consume_queue
  UNION ALL
  SELECT log_id, topic, queue_id, base_offset, base_offset + count, store_timestamp
  FROM batch_consume_queue
),
found AS (
  SELECT
    log_id, consumer_group, topic, queue_id, next_queue_offset,
    max(past) AS past,
    min_by(store_timestamp, first) FILTER (WHERE past > coalesce(next_queue_offset, 0)) AS next_stored,
    max(store_timestamp) FILTER (WHERE first < next_queue_offset AND next_queue_offset <= past) AS last_consumed
  FROM progress
  LEFT JOIN entries USING (log_id, topic, queue_id)
  GROUP BY log_id, consumer_group, topic, queue_id, next_queue_offset
),
newest AS (
  SELECT log_id, max(store_timestamp) AS stored
  FROM log
  GROUP BY log_id
),
-- offsets are fetched beside the log and may be ahead of it; and of an old queue the log may have no entry any more
ends AS (
  SELECT *, greatest(past, next_queue_offset, 0) AS end_queue_offset
  FROM found
  LEFT JOIN newest USING (log_id)
)
SELECT
  log_id,
  consumer_group,
  topic,
  queue_id,
  end_queue_offset,
  next_queue_offset,
  end_queue_offset - coalesce(next_queue_offset, 0),
  CASE
    WHEN end_queue_offset = coalesce(next_queue_offset, 0) THEN 0D
    ELSE (unix_millis(stored) - unix_millis(next_stored)) / 1000
  END,
  last_consumed
FROM ends
