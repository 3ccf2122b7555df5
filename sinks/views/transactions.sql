CREATE VIEW transactions (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  transaction_id COMMENT 'unique key of the message, which names its transaction too; null where it has none',
  state COMMENT 'committed; rolled_back; given_up, the broker has stopped asking; pending, none of these so far',
  producer_group COMMENT 'group of producers that the broker asks what became of it',
  topic COMMENT 'topic that the message is for',
  queue_id COMMENT 'queue of that topic',
  tags COMMENT 'property TAGS; null without one',
  keys COMMENT 'property KEYS, split at spaces; null without one',
  born_timestamp COMMENT 'when the producer made it, by the clock of the producer',
  prepared_timestamp COMMENT 'when the broker first stored the half message',
  resolved_timestamp COMMENT 'when the broker stored what it became or a rollback (since 5.1 up to 3 s late), or gave up',
  checks COMMENT 'how often the broker has asked the producers, by its own count',
  half_offset COMMENT 'offset of the half message, as it was put first',
  last_half_offset COMMENT 'offset of the half message, as it was put last: with each check it is put again',
  message_offset COMMENT 'offset of the message that it became, the first one where it became several; null of others',
  message_id COMMENT 'offset message id of that message',
  queue_offset COMMENT 'index of that message in the consume queue of (topic, queue_id)'
)
COMMENT 'each transaction whose half message is in the log, and what became of it'
AS
WITH
halves AS (
  -- A broker from 4.3 on puts a half message into a topic of its own and, as long as nobody says what becomes of it,
  -- once more with each check. When it gives up it puts it into yet another. Before 4.3 a half message is put once,
  -- where the message will be, and is in no consume queue.
  SELECT
    log_id,
    offset,
    topic AS stored_topic,
    queue_id AS stored_queue_id,
    queue_offset AS stored_queue_offset,
    topic = 'TRANS_CHECK_MAX_TIME_TOPIC' AS is_given_up,
    IF(transaction_type = 'prepared', topic, properties['REAL_TOPIC']) AS topic,
    IF(transaction_type = 'prepared', queue_id, try_cast(properties['REAL_QID'] AS INT)) AS queue_id,
    identity,
    unique_key,
    properties['PGROUP'] AS producer_group,
    try_cast(properties['TRANSACTION_CHECK_TIMES'] AS INT) AS checks,
    tags,
    keys,
    born_timestamp,
    store_timestamp
  FROM records
  WHERE topic IN (
      'RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC', 'TRANS_CHECK_MAX_TIME_TOPIC'
    )
    OR transaction_type = 'prepared'
),
outcomes AS (
  -- They name the put of the half message that they were made of, which may be any, by its offset.
  SELECT log_id, topic, transaction_type, prepared_transaction_offset, offset, message_id, queue_offset, store_timestamp
  FROM records
  WHERE transaction_type IN ('commit', 'rollback')
  UNION ALL
  -- Where a broker keeps track of them in RocksDB (5.4) a rollback is told in the same way, and a commit once more.
  SELECT
    log_id,
    properties['REAL_TOPIC'],
    'rollback',
    try_cast(properties['TRANS_OFFSET'] AS BIGINT),
    offset,
    message_id,
    queue_offset,
    store_timestamp
  FROM records
  WHERE topic = 'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC' AND tags = 'd'
),
removals AS (
  -- From 4.3 on the end of a transaction, good or bad, is an op message too: queue offsets of half messages in decimal,
  -- one up to 5.0, then any number with a comma after each.
  SELECT log_id, queue_id, try_cast(number AS BIGINT) AS half_queue_offset, store_timestamp
  FROM records
  LATERAL VIEW explode(split(CAST(body AS STRING), ',')) numbers AS number
  WHERE topic = 'RMQ_SYS_TRANS_OP_HALF_TOPIC' AND tags = 'd'
),
resolved AS (
  SELECT
    halves.log_id,
    producer_group,
    halves.topic,
    min_by(struct(halves.*), halves.offset) AS first_put,
    min(halves.store_timestamp) FILTER (WHERE NOT is_given_up) AS prepared_timestamp,
    min(halves.store_timestamp) FILTER (WHERE is_given_up) AS given_up_timestamp,
    min(removals.store_timestamp) AS removed_timestamp,
    min(outcomes.store_timestamp) FILTER (WHERE transaction_type = 'rollback') AS rolled_back_timestamp,
    min_by(struct(outcomes.*), outcomes.offset) FILTER (WHERE transaction_type = 'commit') AS message,
    max(checks) AS checks,
    min(halves.offset) FILTER (WHERE NOT is_given_up) AS half_offset,
    max(halves.offset) FILTER (WHERE NOT is_given_up) AS last_half_offset
  FROM halves
  LEFT JOIN outcomes
    ON outcomes.log_id = halves.log_id
    AND outcomes.prepared_transaction_offset = halves.offset
    -- A redelivery of a committed message keeps its type and names offset 0, as all messages do that were not half.
    AND outcomes.topic = halves.topic
  LEFT JOIN removals
    ON removals.log_id = halves.log_id
    AND halves.stored_topic = 'RMQ_SYS_TRANS_HALF_TOPIC'
    AND removals.queue_id = halves.stored_queue_id
    AND removals.half_queue_offset = halves.stored_queue_offset
  GROUP BY halves.log_id, producer_group, halves.topic, identity
)
SELECT
  log_id,
  first_put.unique_key,
  -- An op message alone is a rollback; a producer may still commit what the broker has given up.
  CASE
    WHEN message IS NOT NULL THEN 'committed'
    WHEN removed_timestamp IS NOT NULL OR rolled_back_timestamp IS NOT NULL THEN 'rolled_back'
    WHEN given_up_timestamp IS NOT NULL THEN 'given_up'
    ELSE 'pending'
  END,
  producer_group,
  topic,
  first_put.queue_id,
  first_put.tags,
  first_put.keys,
  first_put.born_timestamp,
  prepared_timestamp,
  coalesce(message.store_timestamp, removed_timestamp, rolled_back_timestamp, given_up_timestamp),
  coalesce(checks, 0),
  half_offset,
  last_half_offset,
  message.offset,
  message.message_id,
  message.queue_offset
FROM resolved
