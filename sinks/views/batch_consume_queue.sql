CREATE VIEW batch_consume_queue (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  topic COMMENT 'topic of the queue; its type is BatchCQ',
  queue_id COMMENT 'queue of the topic',
  base_offset COMMENT 'queue offset of the first message of the record; single ones and batches count apart',
  count COMMENT 'messages in the record; the last one has queue offset base_offset + count - 1',
  offset COMMENT 'where the record begins in the log; (log_id, offset) is the key',
  size COMMENT 'bytes that the record takes',
  tags_code COMMENT 'hash of the tags; 0 of a batch',
  store_timestamp COMMENT 'when the master stored the record, by the clock of the master'
)
COMMENT 'what the files below batchconsumequeue/ of a 5.x broker hold, entry for entry'
AS
WITH queued AS (
  SELECT
    *,
    try_cast(properties['INNER_BASE'] AS BIGINT) AS inner_base,
    try_cast(properties['INNER_NUM'] AS INT) AS inner_num
  FROM records
  WHERE is_dispatched AND in_batch_queue
)
SELECT
  log_id,
  topic,
  queue_id,
  -- A broker looks for the two properties, not at the bit: a record without both of them is a single message.
  CASE WHEN inner_base IS NULL OR inner_num IS NULL THEN queue_offset ELSE inner_base END,
  CASE WHEN inner_base IS NULL OR inner_num IS NULL THEN 1 ELSE inner_num END,
  offset,
  size,
  tags_code,
  store_timestamp
FROM queued
