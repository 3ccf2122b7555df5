"""A session that only reads runs no program, whatever way a statement takes to one."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql import SparkSession

from pipeline.sql.authority import REACH_OUT, may_be_there
from pipeline.sql.reader import Reader
from sources.errors import QueryError

pytestmark = pytest.mark.spark

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
READ = (
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


@pytest.mark.parametrize("text", REFUSED)
def test_what_runs_a_program_is_refused(reader: Reader, text: str) -> None:
    with pytest.raises(QueryError, match="only reads"):
        answers(reader, text)


@pytest.mark.parametrize("text", READ)
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
