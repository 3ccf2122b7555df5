"""What a statement does, by Spark's own grammar: only those pass that change nothing but the session.

Spark's parser says what a statement is before anything of it runs: the rule of `SqlBaseParser.g4` that it matches. The
rules that pass are listed, and whatever else Spark and Delta can do, now or later, does not. That cannot be said of
the plan: ``INSERT INTO IDENTIFIER('…')`` becomes an INSERT only while it is analysed, and CALL and EXECUTE IMMEDIATE
run then.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from pipeline.sql.statements import Statement
from sources.errors import QueryError


class StatementKind(Enum):
    """What comes of a statement."""

    QUERY = "rows"
    DESCRIPTION = "what Spark knows: of tables, columns, plans"
    SETTING = "nothing; the session is another"


_RULES: Final = {"StatementDefault": StatementKind.QUERY, "Explain": StatementKind.DESCRIPTION} | dict.fromkeys(
    (
        "SetConfiguration",
        "SetQuotedConfiguration",
        "SetTimeZone",
        "ResetConfiguration",
        "ResetQuotedConfiguration",
        "CreateTempViewUsing",
    ),
    StatementKind.SETTING,
)
_DESCRIPTIONS: Final = ("Show", "Describe")
_RUN_WHILE_ANALYSED: Final = ("Call", "VisitExecuteImmediate", "ExecuteImmediate")
_IF_TEMPORARY: Final = ("CreateView", "CreateUserDefinedFunction")


def kind_of(spark: SparkSession, statement: Statement) -> StatementKind:
    """Raises QueryError where the statement would change more than the session.

    Raises PySpark's ParseException where Spark cannot read it.
    """
    jvm = cast(Any, spark._jvm)
    # Parsers ask the active session for its settings, and put its variables in: ${x} may stand for anything.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    spark._jsparkSession.sessionState().sqlParser().parsePlan(statement.text)
    substitution = jvm.org.apache.spark.sql.internal.VariableSubstitution()
    kind = _kind(_parsed(jvm, substitution.substitute(statement.text)))
    if kind is None:
        raise QueryError(
            f"line {statement.line}: this session only reads",
            expected="SELECT, WITH, SHOW, DESCRIBE, EXPLAIN, SET or CREATE TEMPORARY VIEW",
            found=" ".join(statement.text.split()[:3]),
            hint="A replica is written by logtwin alone: whatever else writes to it would break its proof.",
        )
    return kind


def _kind(rule: Any) -> StatementKind | None:
    name = str(rule.getClass().getSimpleName()).removesuffix("Context")
    if name in _IF_TEMPORARY:
        return StatementKind.SETTING if rule.TEMPORARY() is not None else None
    if name.startswith(_DESCRIPTIONS):
        return StatementKind.DESCRIPTION
    if name == "Explain" and str(rule.statement().getClass().getSimpleName()).startswith(_RUN_WHILE_ANALYSED):
        return None
    return _RULES.get(name)


def _parsed(jvm: Any, text: str) -> Any:
    """The rule that `text` matches; one without a name of its own where it is not Spark's but Delta's."""
    antlr, parser = jvm.org.antlr.v4.runtime, jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(antlr.CharStreams.fromString(text)))
    lexer.removeErrorListeners()
    reading = parser.SqlBaseParser(antlr.CommonTokenStream(lexer))
    reading.removeErrorListeners()
    return reading.singleStatement().getChild(0)
