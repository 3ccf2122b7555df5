"""Only statements that read are run; the refused ones are those of Spark's and Delta's documentation."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pipeline.sql.authority import Authority, StatementKind
from pipeline.sql.statements import Statement
from sources.errors import QueryError

pytestmark = pytest.mark.spark

READ = {
    StatementKind.QUERY: (
        "SELECT 1",
        "-- why\nSELECT 1",
        "VALUES (1), (2)",
        "TABLE log",
        "FROM log SELECT offset",
        "FROM log |> WHERE offset > 0 |> LIMIT 1",
        "(SELECT 1) UNION ALL SELECT 2 ORDER BY 1",
        "SELECT * FROM IDENTIFIER('log')",
        "SELECT * FROM delta.`/lake/log` VERSION AS OF 3",
    ),
    StatementKind.DESCRIPTION: (
        "SHOW TABLES",
        "SHOW TBLPROPERTIES delta.`/lake/log`",
        "DESCRIBE log",
        "DESCRIBE HISTORY delta.`/lake/log`",
        "DESCRIBE DETAIL delta.`/lake/log`",
        "EXPLAIN FORMATTED SELECT 1",
    ),
    StatementKind.SETTING: (
        "SET",
        "RESET",
        "CREATE TEMPORARY VIEW a AS SELECT 1",
        "CREATE OR REPLACE TEMP VIEW a (n COMMENT 'x') AS SELECT 1",
        "CREATE TEMPORARY VIEW a USING csv OPTIONS (path '/x.csv')",
        "CREATE TEMPORARY FUNCTION f(n INT) RETURNS INT RETURN n + 1",
    ),
}
CHANGE = (
    "INSERT INTO delta.`/lake/log` VALUES (1)",
    "INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT 1",
    "FROM log INSERT INTO a SELECT offset INSERT INTO b SELECT size",
    "DELETE FROM delta.`/lake/log`",
    "UPDATE delta.`/lake/log` SET size = 0",
    "MERGE INTO log USING a ON true WHEN MATCHED THEN DELETE",
    "CREATE TABLE a (n INT)",
    "CREATE TABLE a SHALLOW CLONE delta.`/lake/log`",
    "CREATE VIEW a AS SELECT 1",
    "CREATE FUNCTION f(n INT) RETURNS INT RETURN n",
    "DROP TABLE log",
    "ALTER TABLE delta.`/lake/log` ADD COLUMN n INT",
    "LOAD DATA INPATH '/x' INTO TABLE log",
    "OPTIMIZE delta.`/lake/log`",
    "VACUUM delta.`/lake/log` RETAIN 0 HOURS",
    "RESTORE TABLE delta.`/lake/log` TO VERSION AS OF 1",
    "CONVERT TO DELTA parquet.`/x`",
    "ANALYZE TABLE log COMPUTE STATISTICS",
    "EXPLAIN DELETE FROM delta.`/lake/log`",
    "EXECUTE IMMEDIATE 'DROP TABLE log'",
    "CALL system.rollback('log', 1)",
    "BEGIN DELETE FROM log; END",
    "USE another",
    "ADD JAR '/x.jar'",
    "CACHE TABLE log",
)


@pytest.mark.parametrize("kind", StatementKind)
def test_what_reads_is_run(spark: SparkSession, kind: StatementKind) -> None:
    assert {text: Authority(spark).kind_of(Statement(text)) for text in READ[kind]} == dict.fromkeys(READ[kind], kind)


@pytest.mark.parametrize("text", CHANGE)
def test_what_changes_more_than_the_session_is_not(spark: SparkSession, text: str) -> None:
    with pytest.raises(QueryError, match="line 7: this session only reads") as caught:
        Authority(spark).kind_of(Statement(text, 7))
    assert caught.value.found == " ".join(text.split()[:3])
