CREATE VIEW dead_letters (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  consumer_group COMMENT 'group of consumers that could not consume the message',
  attempts COMMENT 'how often it was delivered to them in vain',
  topic COMMENT 'topic of the original message; null where the dead letter does not tell',
  unique_key COMMENT 'property UNIQ_KEY, the message id that the client made',
  tags COMMENT 'property TAGS; null without one',
  keys COMMENT 'property KEYS, split at spaces; null without one',
  body COMMENT 'body, decompressed',
  born_timestamp COMMENT 'when the producer made the message, by the clock of the producer',
  dead_timestamp COMMENT 'when the broker put it into the dead-letter topic of the group',
  offset COMMENT 'offset of the record there',
  message_id COMMENT 'its offset message id',
  queue_id COMMENT 'queue of the dead-letter topic',
  queue_offset COMMENT 'its index in the consume queue of the dead-letter topic',
  original_message_id COMMENT 'offset message id of the message that the group got first',
  original_offset COMMENT 'its offset; null where the replica does not have it, as the next three',
  original_queue_id COMMENT 'its queue in its topic',
  original_queue_offset COMMENT 'its index in the consume queue of (topic, original_queue_id)',
  original_timestamp COMMENT 'when the broker stored it'
)
COMMENT 'each message that a consumer group gave up after its redeliveries, with the original message'
AS
WITH
dead AS (
  -- Some clients say themselves where a dead letter comes from; else it is known as of any redelivery.
  SELECT
    *,
    coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC']) AS original_topic,
    coalesce(properties['DLQ_ORIGIN_MESSAGE_ID'], properties['ORIGIN_MESSAGE_ID']) AS original_message_id
  FROM records
  WHERE startswith(topic, '%DLQ%')
)
SELECT
  dead.log_id,
  substring(dead.topic, 6),
  dead.reconsume_times,
  coalesce(original_topic, original.topic),
  dead.unique_key,
  dead.tags,
  dead.keys,
  dead.body,
  dead.born_timestamp,
  dead.store_timestamp,
  dead.offset,
  dead.message_id,
  dead.queue_id,
  dead.queue_offset,
  original_message_id,
  original.offset,
  original.queue_id,
  original.queue_offset,
  original.store_timestamp
FROM dead
LEFT JOIN records AS original
  ON original.log_id = dead.log_id
  AND original.message_id = dead.original_message_id
