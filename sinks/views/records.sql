CREATE VIEW records (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  epoch COMMENT 'history of the log; it grows when the log of the master is found rewritten',
  offset COMMENT 'where the record begins; (log_id, offset) is the key',
  size COMMENT 'bytes it takes; offset + size is where the next record begins',
  message_id COMMENT 'offset message id: address of the broker and offset, hexadecimal, as a send is answered with',
  topic COMMENT 'topic as stored; delayed and half messages wait in system topics',
  queue_id COMMENT 'queue of the topic',
  queue_offset COMMENT 'index in the consume queue of (topic, queue_id)',
  is_dispatched COMMENT 'whether it is in a consume queue: not half messages and rollbacks of brokers before 4.3',
  is_system COMMENT 'whether the broker keeps the topic for itself',
  is_inner_batch COMMENT 'whether the body holds several messages',
  in_batch_queue COMMENT 'whether the topic is one of type BatchCQ',
  tags COMMENT 'property TAGS; null without one',
  tags_code COMMENT 'hash of the tags as in the consume queue; parked delay: delivery time, ms',
  keys COMMENT 'property KEYS, split at spaces; null without one',
  unique_key COMMENT 'property UNIQ_KEY, the message id that the client made',
  store_timestamp COMMENT 'when the master stored it, by the clock of the master',
  born_timestamp COMMENT 'when the producer made it, by the clock of the producer',
  body COMMENT 'body, decompressed',
  properties COMMENT 'properties as a RocketMQ consumer sees them',
  flag COMMENT 'flag of the producer',
  sys_flag COMMENT 'bits: 1 compressed, 12 transaction, 16 and 32 IPv6 hosts, 64 and 128 inner batch',
  transaction_type COMMENT 'bits 2 and 3 of sys_flag: none, prepared, commit, rollback',
  born_host COMMENT 'address of the producer, ip:port',
  store_host COMMENT 'address of the broker that wrote it, ip:port',
  reconsume_times COMMENT 'how often it was redelivered',
  prepared_transaction_offset COMMENT 'of a committed transaction: offset of its half message'
)
COMMENT 'each record of a RocketMQ log that is no filler, and what its place in the log makes of it'
AS
SELECT
  log_id, epoch, offset, size, CAST(NULL AS STRING), topic, queue_id, queue_offset, true, false, false, false, tags, tags_code, keys,
  unique_key, store_timestamp, born_timestamp, body, properties, flag, sys_flag, 'none', born_host, store_host, reconsume_times,
  prepared_transaction_offset
FROM log
WHERE kind = 'message' AND startswith(log_id, 'rocketmq/')
