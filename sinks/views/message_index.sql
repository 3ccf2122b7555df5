CREATE VIEW message_index (
  log_id COMMENT 'which log, for example rocketmq/broker-a',
  topic COMMENT 'topic as stored: of a message that waits, the system topic where it waits',
  key COMMENT 'one key, or the unique key',
  is_unique_key COMMENT 'whether it is the unique key, property UNIQ_KEY, and no item of property KEYS',
  offset COMMENT 'where the record begins in the log',
  message_id COMMENT 'offset message id of the record',
  store_timestamp COMMENT 'when the master stored the record, by the clock of the master'
)
COMMENT 'finds records by key, as the files below index/ of the broker and queryMsgByKey do'
AS
WITH indexed AS (
  SELECT *
  FROM records
  -- half messages are in the index, though in no consume queue
  WHERE transaction_type <> 'rollback'
)
SELECT log_id, topic, unique_key AS key, true, offset, message_id, store_timestamp
FROM indexed
WHERE unique_key IS NOT NULL
UNION ALL
-- a key that is given twice has two entries
SELECT log_id, topic, key, false, offset, message_id, store_timestamp
FROM indexed
LATERAL VIEW explode(keys) listed AS key
