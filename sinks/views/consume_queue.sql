CREATE VIEW consume_queue (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  topic COMMENT 'topic of the queue, system topics and light queues (%LMQ%) included',
  queue_id COMMENT 'queue of the topic',
  queue_offset COMMENT 'number of the entry in the queue; (log_id, topic, queue_id, queue_offset) is the key',
  offset COMMENT 'where the record begins in the log',
  size COMMENT 'bytes that the record takes',
  tags_code COMMENT 'hash of the tags; of a parked delay the delivery time, ms',
  store_timestamp COMMENT 'when the master stored the record, by the clock of the master'
)
COMMENT 'what the files below consumequeue/ of the broker hold, entry for entry'
AS
WITH queued AS (
  SELECT *
  FROM records
  WHERE is_dispatched AND NOT in_batch_queue
),
-- Light queues: a record is an entry of further queues, too, which the producer names. The broker adds at which offset.
light_queues AS (
  SELECT
    *,
    split(properties['INNER_MULTI_DISPATCH'], ',') AS names,
    split(properties['INNER_MULTI_QUEUE_OFFSET'], ',') AS queue_offsets
  FROM queued
  -- A retry and a delayed copy have the properties of the original, whose entries they are not.
  WHERE NOT startswith(topic, '%RETRY%') AND NOT startswith(topic, 'rmq_sys_') AND topic <> 'SCHEDULE_TOPIC_XXXX'
),
light_entries AS (
  SELECT
    log_id,
    name AS topic,
    0 AS queue_id,
    try_cast(get(queue_offsets, place) AS BIGINT) AS queue_offset,
    offset,
    size,
    tags_code,
    store_timestamp
  FROM light_queues
  LATERAL VIEW posexplode(names) named AS place, name
  -- a broker leaves lists alone that do not fit together
  WHERE size(names) = size(queue_offsets)
)
SELECT log_id, topic, queue_id, queue_offset, offset, size, tags_code, store_timestamp
FROM queued
UNION ALL
SELECT log_id, topic, queue_id, queue_offset, offset, size, tags_code, store_timestamp
FROM light_entries
-- Brokers since 5.0 take no other names. Whoever asks for one topic is spared this half of the view: Spark puts the name
-- that is asked for into an equation, and finds it false; into startswith() it would not.
WHERE left(topic, 5) = '%LMQ%' AND queue_offset IS NOT NULL
