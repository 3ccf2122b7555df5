"""A statement shows no secret of the process, and nothing that it names is connected to before it is refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from pipeline.sql.reader import Reader
from sources.errors import QueryError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

HOST = "HOST"


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
