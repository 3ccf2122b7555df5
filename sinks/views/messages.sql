CREATE VIEW messages (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  offset COMMENT 'where its record begins; (log_id, offset, batch_index) is the key',
  message_id COMMENT 'offset message id, as a send is answered with; the messages of an inner batch share it',
  unique_key COMMENT 'message id that the client made; a client that sends again makes no new one',
  topic COMMENT 'topic that it was sent to',
  queue_id COMMENT 'queue of the topic',
  queue_offset COMMENT 'place in the queue; consumers take them in this order',
  batch_index COMMENT 'place in its inner batch, from 0; null of every other message',
  tags COMMENT 'tag that consumers may choose by; null without one',
  keys COMMENT 'keys that it is found by; null without one',
  properties COMMENT 'what the application of the producer set; without what RocketMQ puts beside it',
  body COMMENT 'body, decompressed',
  text COMMENT 'body as text; null where it is no UTF-8',
  json COMMENT 'body as VARIANT; null where it is no JSON',
  born_timestamp COMMENT 'when the producer made it, by the clock of the producer',
  stored_timestamp COMMENT 'when the broker first took it, before any delay or transaction; clock of the master',
  delivered_timestamp COMMENT 'when consumers could first see it; clock of the master. Filter on it: it skips files',
  retries COMMENT 'redeliveries so far, of all consumer groups together',
  producer COMMENT 'address of the producer, ip:port',
  sys_flag COMMENT 'bits: 1 compressed, with which codec 1792, 128 of an inner batch; the others as in records',
  stored_body COMMENT 'body as stored, where it cannot be decompressed; else null, and of an inner batch'
)
COMMENT 'what consumers can see: messages of business topics, as they were sent'
AS
WITH visible AS (
  SELECT
    *,
    -- An item takes 22 bytes at least: a number that is none, or absurd, makes no batch.
    CASE WHEN is_inner_batch AND inner_num BETWEEN 1 AND size DIV 22 THEN inner_num END AS batch_messages,
    CASE WHEN batch_messages IS NULL THEN stored_body END AS unread_body -- of a batch each message would have a copy
  FROM (SELECT *, try_cast(properties['INNER_NUM'] AS INT) AS inner_num FROM records)
  WHERE is_dispatched AND NOT is_system AND NOT startswith(topic, '%RETRY%') AND NOT startswith(topic, '%DLQ%')
),
-- The body of an inner batch is its items, one after the other; each begins with its size, an i32, big-endian. Spark
-- copies an array with each element that is added, and bytes with each row, so a batch is taken apart twice: into blocks
-- of as many items as there are blocks, each with its own bytes, and these into items. A column's bytes are copied by
-- each look at it, too, those of a lambda variable are not: hence the arrays of one.
-- How many there are the properties say: who asks for nothing that is inside the items reads no body.
cut AS (
  SELECT
    * EXCEPT (body),
    CASE WHEN batch_messages IS NULL THEN body END AS single_body,
    CASE WHEN batch_messages IS NOT NULL THEN body END AS batch_body,
    CAST(ceil(sqrt(batch_messages)) AS INT) AS block_messages,
    batch_messages DIV block_messages + CAST(batch_messages % block_messages > 0 AS INT) AS blocks
  FROM visible
),
located AS (
  SELECT
    *,
    transform(array(batch_body), bytes -> aggregate(
      sequence(1, blocks),
      array(1L),
      (starts, block) -> array_append(
        starts,
        aggregate(
          sequence(1, block_messages),
          element_at(starts, -1),
          (start, number) ->
            start + coalesce(CAST(conv(hex(substring(bytes, try_cast(start AS INT), 4)), 16, 10) AS BIGINT), 0)
        )
      )
    ))[0] AS block_starts
  FROM cut
),
blocks AS (
  SELECT
    * EXCEPT (batch_body, block_starts),
    least(block_messages, batch_messages - block * block_messages) AS messages_here,
    -- Sizes may lie: the size of the last item is within the block, wherever the next block begins.
    substring(
      batch_body,
      try_cast(get(block_starts, block) AS INT),
      CAST(least(get(block_starts, block + 1) - get(block_starts, block) + 4, length(batch_body)) AS INT)
    ) AS block_body
  FROM located
  LATERAL VIEW explode(sequence(0, coalesce(blocks, 1) - 1)) numbers AS block
),
in_blocks AS (
  SELECT
    *,
    transform(array(block_body), bytes -> aggregate(
      sequence(1, messages_here),
      array(1L),
      (starts, number) -> array_append(
        starts,
        element_at(starts, -1)
          + coalesce(CAST(conv(hex(substring(bytes, try_cast(element_at(starts, -1) AS INT), 4)), 16, 10) AS BIGINT), 0)
      )
    ))[0] AS starts
  FROM blocks
),
items AS (
  SELECT
    * EXCEPT (block_body, starts),
    coalesce(block * block_messages, 0) + place_here AS place,
    substring(
      block_body,
      try_cast(get(starts, place_here) AS INT),
      try_cast(get(starts, place_here + 1) - get(starts, place_here) AS INT)
    ) AS item
  FROM in_blocks
  LATERAL VIEW explode(sequence(0, coalesce(messages_here, 1) - 1)) places AS place_here
),
-- An item: i32 each of size, magic, CRC, flag, length of the body; the body; i16 length of the properties; properties.
-- What does not fit leaves it without a body.
bodies AS (
  SELECT
    *,
    CAST(conv(hex(substring(item, 17, 4)), 16, 10) AS BIGINT) AS stated_length,
    CASE WHEN stated_length BETWEEN 0 AND length(item) - 22 THEN CAST(stated_length AS INT) END AS body_length
  FROM items
),
-- Properties are stored as name 0x01 value 0x02, over and over.
pairs AS (
  SELECT
    *,
    transform(
      filter(
        split(make_valid_utf8(CAST(substring(item, 23 + body_length, length(item)) AS STRING)), chr(2)),
        pair -> instr(pair, chr(1)) BETWEEN 2 AND length(pair) - 1
      ),
      pair -> struct(substring_index(pair, chr(1), 1) AS name, substring(pair, instr(pair, chr(1)) + 1) AS value)
    ) AS item_pairs
  FROM bodies
),
sent AS (
  SELECT
    log_id,
    offset,
    message_id,
    identity,
    topic,
    queue_id,
    queue_offset + place AS queue_offset,
    batch_messages IS NOT NULL AS in_batch,
    CASE WHEN in_batch THEN CAST(place AS INT) END AS batch_index,
    tags,
    keys,
    unique_key,
    CASE
      WHEN in_batch THEN map_from_entries(
        -- of a name that is given twice the last one counts
        filter(
          item_pairs,
          (pair, number) -> NOT exists(slice(item_pairs, number + 2, size(item_pairs)), later -> later.name = pair.name)
        )
      )
      ELSE properties
    END AS sent_properties,
    CASE WHEN in_batch THEN substring(item, 21, body_length) ELSE single_body END AS sent_body,
    born_timestamp,
    store_timestamp,
    born_host,
    sys_flag,
    unread_body
  FROM pairs
),
read AS (
  SELECT
    *,
    try_validate_utf8(CAST(sent_body AS STRING)) AS text,
    -- The parser stops where the first value ends, and takes 42 apples for 42. In a list with another item after it the
    -- text has to be one value and nothing else.
    try_parse_json(concat('[', text, ',"end of body"]')) AS list
  FROM sent
),
-- Where a message waited before it went to its topic: each put of a half message, of the check, too, and each roll of a
-- timer is a record of its own. Before 4.3 a half message waited in its own topic, at queue offset 0.
parked AS (
  SELECT
    log_id,
    CASE WHEN is_dispatched THEN properties['REAL_TOPIC'] ELSE topic END AS real_topic,
    identity,
    store_timestamp
  FROM records
  WHERE topic IN (
      'SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer', 'RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC'
    )
    OR queue_offset = 0 AND transaction_type = 'prepared'
),
first_parked AS (
  SELECT log_id, real_topic, identity, min(store_timestamp) AS parked_timestamp
  FROM parked
  GROUP BY log_id, real_topic, identity
),
redelivered AS (
  SELECT log_id, origin, count(*) AS times
  FROM (
    SELECT log_id, properties['ORIGIN_MESSAGE_ID'] AS origin
    FROM records
    WHERE startswith(topic, '%RETRY%') AND is_dispatched
  )
  GROUP BY log_id, origin
)
SELECT
  read.log_id,
  offset,
  message_id,
  CASE WHEN in_batch THEN sent_properties['UNIQ_KEY'] ELSE unique_key END,
  topic,
  queue_id,
  queue_offset,
  batch_index,
  CASE WHEN in_batch THEN sent_properties['TAGS'] ELSE tags END,
  CASE WHEN in_batch THEN filter(split(sent_properties['KEYS'], ' '), key -> key <> '') ELSE keys END,
  -- What RocketMQ reserves for itself; its clients refuse these names to applications.
  map_filter(
    sent_properties,
    (name, value) -> NOT startswith(name, '__RMQ') AND name NOT IN (
      'KEYS', 'TAGS', 'UNIQ_KEY', 'WAIT', 'DELAY', 'RETRY_TOPIC', 'REAL_TOPIC', 'REAL_QID', 'TRAN_MSG', 'PGROUP',
      'MIN_OFFSET', 'MAX_OFFSET', 'BUYER_ID', 'ORIGIN_MESSAGE_ID', 'TRANSFER_FLAG', 'CORRECTION_FLAG', 'MQ2_FLAG',
      'RECONSUME_TIME', 'MAX_RECONSUME_TIMES', 'MSG_REGION', 'TRACE_ON', 'EXTEND_UNIQ_INFO', 'CONSUME_START_TIME',
      'INSTANCE_ID', 'CLUSTER', 'MSG_TYPE', 'INNER_NUM', 'INNER_BASE', 'DUP_INFO', 'CHECK_IMMUNITY_TIME_IN_SECONDS',
      'TRAN_PREPARED_QUEUE_OFFSET', '__transactionId__', 'TRANSACTION_CHECK_TIMES', 'TRANS_OFFSET', 'CORRELATION_ID',
      'REPLY_TO_CLIENT', 'TTL', 'ARRIVE_TIME', 'PUSH_REPLY_TIME', 'POP_CK', 'POP_CK_OFFSET', '1ST_POP_TIME',
      '__SHARDINGKEY', 'PROPERTY_FORWARD_QUEUE_ID', 'REDIRECT', 'INNER_MULTI_DISPATCH', 'INNER_MULTI_QUEUE_OFFSET',
      'TRACE_CONTEXT', '__BORNHOST', 'BORN_TIMESTAMP', 'TIMER_DELAY_SEC', 'TIMER_DELAY_MS', 'TIMER_DELIVER_MS',
      'TIMER_OUT_MS', 'TIMER_ENQUEUE_MS', 'TIMER_DEQUEUE_MS', 'TIMER_ROLL_TIMES', 'TIMER_DEL_UNIQKEY', 'TIMER_DEL_MS',
      'TIMER_DELAY_LEVEL', 'DLQ_ORIGIN_TOPIC', 'DLQ_ORIGIN_MESSAGE_ID', '__CRC32#'
    )
  ),
  sent_body,
  text,
  CASE
    WHEN try_variant_get(list, '$[1]', 'string') = 'end of body' AND try_variant_get(list, '$[2]', 'variant') IS NULL
      THEN try_variant_get(list, '$[0]', 'variant')
  END,
  born_timestamp,
  -- least() passes over null
  least(parked_timestamp, store_timestamp),
  store_timestamp,
  coalesce(times, 0),
  born_host,
  sys_flag,
  unread_body
FROM read
-- Both sides on the right have one row for a message: Spark leaves out the join whose column is not asked for.
LEFT JOIN first_parked
  ON read.log_id = first_parked.log_id AND topic = real_topic AND read.identity = first_parked.identity
LEFT JOIN redelivered
  ON read.log_id = redelivered.log_id AND message_id = origin
