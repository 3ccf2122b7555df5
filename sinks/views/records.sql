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
  prepared_transaction_offset COMMENT 'of a committed transaction: offset of its half message',
  identity COMMENT 'what all copies of a message share: the unique key; without one, birth and checksum of the body',
  stored_body COMMENT 'body as stored, where it says that it is compressed and cannot be decompressed; else null'
)
COMMENT 'each record of a RocketMQ log that is no filler, and what its place in the log makes of it'
AS
WITH stored AS (
  SELECT
    *,
    -- [0:0:0:0:0:0:0:1]:10911 or 127.0.0.1:10911: the parts of the address, and the port last
    split(translate(store_host, '[]', ''), '[.:]') AS host_parts,
    startswith(store_host, '[') AS is_ipv6,
    properties['CLUSTER'] AS cluster
  FROM log
  WHERE kind = 'message' AND startswith(log_id, 'rocketmq/')
),
-- What the broker itself is called: the id of the log may be any name. Where nobody fetched the topics nobody can say.
broker_names AS (
  SELECT log_id, name
  FROM (
    SELECT
      log_id,
      CASE
        -- since 5.0 each broker has a topic that is named after it
        WHEN startswith(topic, 'rmq_sys_SYNC_BROKER_MEMBER_') THEN substring(topic, 28)
        -- before, a broker gave the bit to inherit to its own topic, with one queue, and to two others, with more
        WHEN attributes IS NULL AND perm & 1 <> 0 AND read_queue_nums = 1 AND write_queue_nums = 1 THEN topic
      END AS name
    FROM topics
  )
  WHERE name IS NOT NULL
  GROUP BY log_id, name
),
-- Only a topic of type BatchCQ takes an inner batch. That says what its type is where nobody fetched the topics.
queue_types AS (
  SELECT
    log_id,
    topic,
    coalesce(bool_or(told), bool_or(seen)) AS is_batch
  FROM (
    SELECT log_id, topic, coalesce(attributes['queue.type'] = 'BatchCQ', false) AS told, CAST(NULL AS BOOLEAN) AS seen
    FROM topics
    UNION ALL
    SELECT log_id, topic, CAST(NULL AS BOOLEAN), true
    FROM log
    WHERE kind = 'message' AND startswith(log_id, 'rocketmq/') AND sys_flag & 128 <> 0
      AND sys_flag NOT BETWEEN 0 AND 127 -- the same, as a bound: files and row groups are skipped by it
  )
  GROUP BY log_id, topic
)
SELECT /*+ BROADCAST(queue_types, broker_names) */
  stored.log_id,
  epoch,
  offset,
  size,
  concat(
    -- The broker stored 16 bytes that Java prints as the IPv4 address that is mapped into them.
    CASE WHEN sys_flag & 32 <> 0 AND NOT is_ipv6 THEN '00000000000000000000FFFF' ELSE '' END,
    array_join(
      transform(
        slice(host_parts, 1, size(host_parts) - 1),
        part -> CASE WHEN is_ipv6 THEN lpad(upper(part), 4, '0') ELSE lpad(hex(try_cast(part AS INT)), 2, '0') END
      ),
      ''
    ),
    right(concat('0000000', hex(try_cast(element_at(host_parts, -1) AS INT))), 8),
    lpad(hex(offset), 16, '0')
  ),
  stored.topic,
  queue_id,
  queue_offset,
  sys_flag & 12 IN (0, 8),
  -- Brokers make all of them themselves. RocketMQ compares the names to the letter, and so does this.
  stored.topic IN (
    'TBW102', 'SELF_TEST_TOPIC', 'BenchmarkTest', 'OFFSET_MOVED_EVENT', 'CHECKPOINT_TOPIC', 'RMQ_SYS_TRACE_TOPIC',
    'SCHEDULE_TOPIC_XXXX', 'RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_TRANS_OP_HALF_TOPIC', 'TRANS_CHECK_MAX_TIME_TOPIC',
    'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC'
  )
    OR startswith(stored.topic, 'rmq_sys_')
    -- the topics that bear the names of the broker and of its cluster, and that of answers to requests
    OR broker_names.name IS NOT NULL
    OR coalesce(stored.topic IN (cluster, concat(cluster, '_REPLY_TOPIC')), false),
  sys_flag & 128 <> 0,
  coalesce(is_batch, false),
  tags,
  tags_code,
  keys,
  unique_key,
  store_timestamp,
  born_timestamp,
  body,
  properties,
  flag,
  sys_flag,
  CASE sys_flag & 12 WHEN 0 THEN 'none' WHEN 4 THEN 'prepared' WHEN 8 THEN 'commit' ELSE 'rollback' END,
  born_host,
  store_host,
  reconsume_times,
  prepared_transaction_offset,
  coalesce(
    unique_key, concat_ws('/', CAST(unix_millis(born_timestamp) AS STRING), born_host, CAST(body_crc AS STRING))
  ),
  CASE WHEN body IS NULL THEN stored_body END
FROM stored
-- Each topic has one row in either: where the column is not asked for Spark leaves the join out.
LEFT JOIN queue_types ON stored.log_id = queue_types.log_id AND stored.topic = queue_types.topic
LEFT JOIN broker_names ON stored.log_id = broker_names.log_id AND stored.topic = broker_names.name
