CREATE VIEW topic_stats (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  topic COMMENT 'topic of the business',
  hour COMMENT 'hour in which they could first be consumed: its beginning, in the time zone of the session',
  messages COMMENT 'messages, those of inner batches one by one',
  body_bytes COMMENT 'bytes of their bodies, decompressed',
  producers COMMENT 'hosts that they came from, by address',
  first_delivered_timestamp COMMENT 'delivered_timestamp of the first of them',
  last_delivered_timestamp COMMENT 'delivered_timestamp of the last of them'
)
COMMENT 'messages, bytes and producers of each topic in each hour'
AS
SELECT
  log_id,
  topic,
  date_trunc('HOUR', delivered_timestamp),
  count(*),
  coalesce(sum(octet_length(body)), 0),
  -- a producer takes another port for each connection
  count(DISTINCT regexp_replace(producer, ':[0-9]+$', '')),
  min(delivered_timestamp),
  max(delivered_timestamp)
FROM messages
GROUP BY log_id, topic, date_trunc('HOUR', delivered_timestamp)
