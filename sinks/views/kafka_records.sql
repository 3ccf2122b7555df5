CREATE VIEW kafka_records (
  log_id COMMENT 'which log: kafka/<cluster>/<topic>/<partition>',
  topic COMMENT 'topic that it was sent to',
  partition COMMENT 'partition of the topic',
  offset COMMENT 'offset in the partition; (log_id, offset) is the key',
  timestamp COMMENT 'as timestamp_type says; null where there is none, and outside the years 1 to 9999',
  timestamp_type COMMENT 'create_time (clock of the producer) or log_append_time (of the broker), and the ms if timestamp lacks them',
  key COMMENT 'key; null of a record without one, which is not an empty one',
  key_text COMMENT 'key as text; null where it is no UTF-8',
  value COMMENT 'value; null of a tombstone, which is not an empty one',
  value_text COMMENT 'value as text; null where it is no UTF-8',
  value_json COMMENT 'value as VARIANT; null where it is no JSON',
  headers COMMENT 'headers in their order, keys may repeat; a value may be null',
  header_texts COMMENT 'headers by key, the last one of each; a value is null where it is no UTF-8',
  is_tombstone COMMENT 'whether it has no value: a compacted topic says so that the key is deleted',
  leader_epoch COMMENT 'epoch of the leader that wrote it; null where the batch has none',
  epoch COMMENT 'history of the log; it grows when the log of the master is found rewritten'
)
COMMENT 'each record of a replicated Kafka topic, as bytes, text and JSON'
AS
WITH texts AS (
  SELECT
    *,
    try_validate_utf8(CAST(key AS STRING)) AS key_text,
    try_validate_utf8(CAST(value AS STRING)) AS value_text,
    -- The parser stops where the first value ends, and takes 42 apples for 42. In a list with another item after it the
    -- text has to be one value and nothing else.
    try_parse_json(concat('[', value_text, ',"end of value"]')) AS list
  FROM kafka_log
)
SELECT
  log_id,
  topic,
  partition,
  offset,
  timestamp,
  timestamp_type,
  key,
  key_text,
  value,
  value_text,
  CASE
    WHEN try_variant_get(list, '$[1]', 'string') = 'end of value' AND try_variant_get(list, '$[2]', 'variant') IS NULL
      THEN try_variant_get(list, '$[0]', 'variant')
  END,
  headers,
  map_from_entries(
    transform(
      filter(
        headers,
        (header, number) -> NOT exists(slice(headers, number + 2, size(headers)), later -> later.key = header.key)
      ),
      header -> struct(header.key, try_validate_utf8(CAST(header.value AS STRING)))
    )
  ),
  value IS NULL,
  leader_epoch,
  epoch
FROM texts
