CREATE VIEW delayed_messages (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  kind COMMENT 'level, one of the delays that the broker is configured with; timer, any time (5.x)',
  level COMMENT 'delay level from 1 on; null of a timer',
  state COMMENT 'pending; delivered; cancelled, a recall of it will keep a pending timer from delivery',
  topic COMMENT 'topic that the message is for',
  queue_id COMMENT 'queue of that topic',
  unique_key COMMENT 'property UNIQ_KEY, the message id that the client made',
  tags COMMENT 'property TAGS; null without one',
  keys COMMENT 'property KEYS, split at spaces; null without one',
  born_timestamp COMMENT 'when the producer made it, by the clock of the producer',
  parked_timestamp COMMENT 'when the broker took it to wait',
  due_timestamp COMMENT 'when the broker is to deliver it',
  cancelled_timestamp COMMENT 'when the broker stored the recall; null without one',
  delivered_timestamp COMMENT 'when the broker delivered it; null before',
  parked_offset COMMENT 'offset of the record that waits: its body and properties are in records',
  delivered_offset COMMENT 'offset of the delivered message; null before',
  message_id COMMENT 'offset message id of the delivered message',
  queue_offset COMMENT 'index of the delivered message in the consume queue of (topic, queue_id)'
)
COMMENT 'each message with a delay, and whether it was delivered; redeliveries to consumers are in retries'
AS
WITH
copies AS (
  -- A parked message is in a topic of the broker and names its own. What is delivered is a copy in that one: other
  -- offsets, the rest the same, what parked it included.
  SELECT
    log_id,
    true AS is_parked,
    topic = 'rmq_sys_wheel_timer' AS is_timer,
    properties['REAL_TOPIC'] AS topic,
    try_cast(properties['REAL_QID'] AS INT) AS queue_id,
    -- Each level has a queue, and its consume queue the time of delivery instead of a hash of the tags.
    IF(topic = 'SCHEDULE_TOPIC_XXXX', try_add(queue_id, 1), NULL) AS level,
    IF(topic = 'SCHEDULE_TOPIC_XXXX', tags_code, try_cast(properties['TIMER_OUT_MS'] AS BIGINT)) AS due_ms,
    -- A timer that is due beyond the reach of the wheel is parked again and again, for the same moment: one message.
    IF(topic = 'rmq_sys_wheel_timer', NULL, offset) AS place,
    identity,
    unique_key,
    tags,
    keys,
    born_timestamp,
    offset,
    store_timestamp,
    message_id,
    queue_offset
  FROM records
  WHERE (topic = 'SCHEDULE_TOPIC_XXXX' OR topic = 'rmq_sys_wheel_timer' AND properties['TIMER_DEL_UNIQKEY'] IS NULL)
    AND NOT startswith(properties['REAL_TOPIC'], '%RETRY%')
    -- the broker itself waits too: for acknowledgements of pop consumers
    AND NOT startswith(properties['REAL_TOPIC'], 'rmq_sys_')
  UNION ALL
  SELECT
    log_id,
    false,
    NULL,
    topic,
    queue_id,
    NULL,
    NULL,
    offset,
    identity,
    unique_key,
    tags,
    keys,
    born_timestamp,
    offset,
    store_timestamp,
    message_id,
    queue_offset
  FROM records
  WHERE NOT is_system AND (properties['DELAY'] IS NOT NULL OR properties['TIMER_OUT_MS'] IS NOT NULL)
),
numbered AS (
  -- The same message may be parked more than once: what is due first is delivered first.
  SELECT
    *,
    dense_rank() OVER (
      PARTITION BY log_id, topic, queue_id, identity, born_timestamp, is_parked
      ORDER BY due_ms, place
    ) AS number
  FROM copies
),
delayed AS (
  SELECT
    log_id,
    topic,
    queue_id,
    min_by(struct(*), offset) FILTER (WHERE is_parked) AS parked,
    min_by(struct(*), offset) FILTER (WHERE NOT is_parked) AS delivered
  FROM numbered
  GROUP BY log_id, topic, queue_id, identity, born_timestamp, number
),
recalls AS (
  -- A recall is a timer of its own, due at the same moment as the one that it names; some brokers name its topic too.
  SELECT
    log_id,
    replace(properties['TIMER_DEL_UNIQKEY'], concat(properties['REAL_TOPIC'], '+')) AS unique_key,
    try_cast(properties['TIMER_OUT_MS'] AS BIGINT) AS due_ms,
    min(store_timestamp) AS cancelled_timestamp
  FROM records
  WHERE topic = 'rmq_sys_wheel_timer' AND properties['TIMER_DEL_UNIQKEY'] IS NOT NULL
  GROUP BY ALL
)
SELECT
  delayed.log_id,
  IF(parked.is_timer, 'timer', 'level'),
  parked.level,
  CASE
    WHEN delivered IS NOT NULL THEN 'delivered'
    WHEN cancelled_timestamp IS NOT NULL THEN 'cancelled'
    ELSE 'pending'
  END,
  topic,
  queue_id,
  parked.unique_key,
  parked.tags,
  parked.keys,
  parked.born_timestamp,
  parked.store_timestamp,
  -- null where a year has not four digits: no broker writes that
  IF(parked.due_ms BETWEEN 0 AND 253402300799999, timestamp_millis(parked.due_ms), NULL),
  cancelled_timestamp,
  delivered.store_timestamp,
  parked.offset,
  delivered.offset,
  delivered.message_id,
  delivered.queue_offset
FROM delayed
LEFT JOIN recalls
  ON parked.is_timer
  AND recalls.log_id = delayed.log_id
  AND recalls.unique_key = parked.unique_key
  AND recalls.due_ms = parked.due_ms
WHERE parked IS NOT NULL
