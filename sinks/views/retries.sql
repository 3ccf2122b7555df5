CREATE VIEW retries (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  consumer_group COMMENT 'group of consumers that gets the message again',
  attempt COMMENT 'which redelivery it is: 1 is the first',
  state COMMENT 'waiting, for its delay to pass; delivered, into the retry topic of the group',
  topic COMMENT 'topic of the original message; null where the redelivery does not tell',
  unique_key COMMENT 'property UNIQ_KEY, the message id that the client made',
  tags COMMENT 'property TAGS; null without one',
  keys COMMENT 'property KEYS, split at spaces; null without one',
  body COMMENT 'body, decompressed',
  born_timestamp COMMENT 'when the producer made the message, by the clock of the producer',
  parked_timestamp COMMENT 'when the broker took it back from the consumer, to wait; null where it did not wait',
  due_timestamp COMMENT 'when the broker is to deliver it',
  delivered_timestamp COMMENT 'when the broker delivered it; null while it waits',
  parked_offset COMMENT 'offset of the record that waits; null where none did',
  delivered_offset COMMENT 'offset of the record in the retry topic; null while it waits',
  message_id COMMENT 'offset message id of the record in the retry topic',
  queue_id COMMENT 'queue of the retry topic',
  queue_offset COMMENT 'index of the record in the consume queue of the retry topic',
  original_message_id COMMENT 'offset message id of the message that the group got first',
  original_offset COMMENT 'its offset; null where the replica does not have it, as the next three',
  original_queue_id COMMENT 'its queue in its topic',
  original_queue_offset COMMENT 'its index in the consume queue of (topic, original_queue_id)',
  original_timestamp COMMENT 'when the broker stored it'
)
COMMENT 'each redelivery of a message that a consumer group has not consumed, with the original message'
AS
WITH
copies AS (
  -- A redelivery mostly waits, parked as any delay is, and is then copied into the retry topic of its group: other
  -- offsets, the rest the same. What a pop consumer has not acknowledged (5.x) goes there at once.
  SELECT
    log_id,
    false AS is_parked,
    topic AS retry_topic,
    queue_id,
    CAST(NULL AS BIGINT) AS due_ms,
    reconsume_times,
    identity,
    unique_key,
    tags,
    keys,
    body,
    born_timestamp,
    properties['RETRY_TOPIC'] AS original_topic,
    properties['ORIGIN_MESSAGE_ID'] AS original_message_id,
    offset,
    store_timestamp,
    message_id,
    queue_offset
  FROM records
  WHERE startswith(topic, '%RETRY%')
  UNION ALL
  SELECT
    log_id,
    true,
    properties['REAL_TOPIC'],
    try_cast(properties['REAL_QID'] AS INT),
    tags_code,
    reconsume_times,
    identity,
    unique_key,
    tags,
    keys,
    body,
    born_timestamp,
    properties['RETRY_TOPIC'],
    properties['ORIGIN_MESSAGE_ID'],
    offset,
    store_timestamp,
    message_id,
    queue_offset
  FROM records
  WHERE topic = 'SCHEDULE_TOPIC_XXXX' AND startswith(properties['REAL_TOPIC'], '%RETRY%')
),
numbered AS (
  -- Two consumers may return the same message: what is due first is delivered first.
  SELECT
    *,
    row_number() OVER (
      PARTITION BY log_id, retry_topic, queue_id, reconsume_times, identity, born_timestamp, is_parked
      ORDER BY due_ms, offset
    ) AS number
  FROM copies
),
redeliveries AS (
  SELECT
    log_id,
    -- A retry topic of pop consumers may name the topic too, after a plus sign that no other name has.
    substring_index(substring(retry_topic, 8), '+', 1) AS consumer_group,
    IF(contains(retry_topic, '+'), substring_index(retry_topic, '+', -1), NULL) AS popped_topic,
    min_by(struct(*), offset) AS message,
    min_by(struct(*), offset) FILTER (WHERE is_parked) AS parked,
    min_by(struct(*), offset) FILTER (WHERE NOT is_parked) AS delivered
  FROM numbered
  GROUP BY log_id, retry_topic, queue_id, reconsume_times, identity, born_timestamp, number
)
SELECT
  redeliveries.log_id,
  consumer_group,
  message.reconsume_times,
  IF(delivered IS NULL, 'waiting', 'delivered'),
  coalesce(message.original_topic, popped_topic, original.topic),
  message.unique_key,
  message.tags,
  message.keys,
  message.body,
  message.born_timestamp,
  parked.store_timestamp,
  -- null where a year has not four digits: no broker writes that
  IF(parked.due_ms BETWEEN 0 AND 253402300799999, timestamp_millis(parked.due_ms), NULL),
  delivered.store_timestamp,
  parked.offset,
  delivered.offset,
  delivered.message_id,
  message.queue_id,
  delivered.queue_offset,
  message.original_message_id,
  original.offset,
  original.queue_id,
  original.queue_offset,
  original.store_timestamp
FROM redeliveries
LEFT JOIN records AS original
  ON original.log_id = redeliveries.log_id
  AND original.message_id = message.original_message_id
