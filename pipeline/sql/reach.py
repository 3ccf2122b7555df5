"""What a query would do when it runs, by the plan that Spark has analysed: it may read, and must not run programs.

`grammar` says what a statement is; this says what a query is made of, views, subqueries and functions resolved. Not by
words: of a plan's JSON each node and each expression names its class, and no text of the query can stand for one.

* The nodes that may be there are listed, and whatever else Spark can plan, now or later, may not: TRANSFORM runs a
  program, a Python data source is one, JDBC reaches other hosts.
* Expressions may be Spark's own, but for those that run what the query names: methods of Java, functions of users.

A guard against a pasted statement that does more than its reader saw. It keeps nobody out who could start a process
here anyway: files can be read by path.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

from pipeline.sql.grammar import StatementKind
from pipeline.sql.statements import Statement
from sources.errors import QueryError

_SQL: Final = "org.apache.spark.sql"
_LOGICAL: Final = f"{_SQL}.catalyst.plans.logical"
_NODES: Final = frozenset(
    f"{_LOGICAL}.{name}"
    for name in (
        *("Aggregate", "AsOfJoin", "CTERelationDef", "CTERelationRef", "Deduplicate", "Distinct", "Except", "Expand"),
        *("Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin", "LocalLimit", "LocalRelation"),
        *("Offset", "OneRowRelation", "Project", "Range", "RebalancePartitions", "Repartition"),
        *("RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "SubqueryAlias", "Tail", "Union", "UnionLoop"),
        *("UnionLoopRef", "View", "Window", "WithCTE"),
    )
) | {f"{_SQL}.execution.datasources.LogicalRelation"}
_EXPRESSIONS: Final = re.compile(
    rf"{re.escape(_SQL)}\.catalyst\.expressions\.((aggregate|variant|json|csv|xml)\.)?\w+\$?"
)
RUN_WHAT_IS_NAMED: Final = frozenset(
    f"{_SQL}.catalyst.expressions.{name}"
    for name in (
        *("CallMethodViaReflection", "TryReflect"),
        *("ScalaUDF", "PythonUDF", "PythonUDAF", "PythonUDTF", "UnresolvedPythonUDTF"),
        *("UnresolvedPolymorphicPythonUDTF", "UserDefinedGenerator"),
        *("ApplyFunctionExpression", "TransformExpression", "PartitionTransformExpression"),
        *("aggregate.V2Aggregator", "FromAvro", "FromProtobuf", "ToAvro", "ToProtobuf"),
    )
)
"""Of Spark's expressions those that run a method or a function of somebody's, or read a file that the query names."""
_CLASS: Final = re.compile(r'(?<!\\)"class":"([^"]+)"')

SOURCES: Final = ("binaryfile", "csv", "delta", "json", "orc", "parquet", "text", "xml")
"""What CREATE TEMPORARY VIEW … USING may name: files."""
_KEY: Final = re.compile(
    r"(?!spark\.sql\.(catalog\.|extensions|queryExecutionListeners|streaming\.))(spark\.sql\.[\w.]+|\w+)"
)


def frame_of(spark: SparkSession, statement: Statement, kind: StatementKind) -> DataFrame:
    """The statement's answer, of Spark's own means alone. What it would reach is checked before anything of it runs.

    Raises QueryError naming what it would run; PySpark's exceptions where Spark cannot make a plan, or run a command.
    """
    state = spark._jsparkSession.sessionState()
    plan = _analysed(spark, state.sqlParser().parsePlan(statement.text))
    if kind is StatementKind.QUERY:
        _check(plan, statement)
        dataset = getattr(cast(Any, spark._jvm).org.apache.spark.sql.classic, "Dataset$")
        return DataFrame(getattr(dataset, "MODULE$").ofRows(spark._jsparkSession, plan), spark)  # the very plan
    command = str(plan.getClass().getSimpleName())
    if command == "ExplainCommand":  # the optimizer evaluates what it can
        _check(_analysed(spark, plan.logicalPlan()), statement)
    elif command == "SetCommand":
        _check_setting(plan, statement)
    elif command == "CreateTempViewUsing":
        _check_source(str(plan.provider()), statement)
    return spark.sql(statement.text)


def _analysed(spark: SparkSession, parsed: Any) -> Any:
    modes = getattr(cast(Any, spark._jvm).org.apache.spark.sql.execution, "CommandExecutionMode$")
    skip = getattr(modes, "MODULE$").SKIP()
    return spark._jsparkSession.sessionState().executePlan(parsed, skip).analyzed()


def _check(plan: Any, statement: Statement) -> None:
    found = set(_CLASS.findall(str(plan.toJSON())))
    refused = sorted(name for name in found if not may_be_there(name))
    if refused:
        names = ", ".join(name.rpartition(".")[2] for name in refused)
        raise _refused(statement, "queries that read", f"{names}, which may run a program or reach elsewhere")


def may_be_there(name: str) -> bool:
    """Whether a query's plan may have a node or an expression of this class."""
    return name in _NODES or (_EXPRESSIONS.fullmatch(name) is not None and name not in RUN_WHAT_IS_NAMED)


def _check_setting(plan: Any, statement: Statement) -> None:
    given = plan.kv()
    key = str(given.get()._1()) if given.isDefined() else ""
    if key and _KEY.fullmatch(key) is None:
        raise _refused(statement, "a setting of spark.sql, or a name without a dot for ${name}", key)


def _check_source(provider: str, statement: Statement) -> None:
    if provider.lower() not in SOURCES:
        raise _refused(statement, f"USING {', '.join(SOURCES)}", provider)


def _refused(statement: Statement, expected: str, found: str) -> QueryError:
    return QueryError(
        f"line {statement.line}: this session only reads, and runs nothing else",
        expected=expected,
        found=found,
        hint="docs/sql.md says what it runs. Spark itself, with register() of sinks.views.registration, runs the rest.",
    )
