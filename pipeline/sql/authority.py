"""What a statement may do: read one replica, and files beside it. Decided before Spark looks anything up.

Spark's parser makes a plan of a statement, in which names are still names and paths are texts. It asks nobody for that.
The analysis does: it lists the files at a path, opens the schema that an option names, runs what makes a name. So the
parsed plan is judged, and the very plan that was judged is run.

* Its parts are listed, and whatever else Spark and Delta can do, now or later, may not be there: what writes, CALL and
  EXECUTE IMMEDIATE, TRANSFORM, an IDENTIFIER that is computed.
* Expressions may be Spark's own, but for those that run what the query names or reach elsewhere. A function is judged
  by the class that Spark would run. Those of the session were judged when they were made.
* Tables and views are those of the session; no catalog is asked.
* Paths are of the local disk or of the warehouse's own store (`named_places`).
* ``${…}`` stands for itself: variables would put in the environment and the properties of the process.

A guard against a pasted statement that does more than its reader saw. It keeps nobody out who could start a process
here anyway: files can be read by path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, cast

from py4j.java_collections import JavaMap
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from pipeline.sql.failures import no_table
from pipeline.sql.named_places import FORMATS, is_reachable, unreachable_option
from pipeline.sql.statements import Statement
from sinks.delta.java_names import java_names
from sinks.storage.check import check_one_place
from sinks.storage.place import LOCAL, Place, placed
from sources.errors import QueryError

_SPARK: Final = "org.apache.spark.sql"
_NO_PARTS: Final = re.compile(
    r"java\.|org\.apache\.spark\.unsafe\.types\.|scala\.None\$|scala\.Enumeration"
    rf"|{re.escape(_SPARK)}\.(types|util|internal)\."
    rf"|{re.escape(_SPARK)}\.catalyst\.((Alias|Table|Function)Identifier\b|plans\.\w+\$?$)"
)
"""Names, types, kinds of joins: nothing is in them that could be asked for."""
_CONTAINERS: Final = re.compile(r"scala\.(Some|Tuple\d+|util\.(Left|Right))$")
_WHOLE: Final = re.compile(rf"{re.escape(_SPARK)}\.catalyst\.(expressions\.Literal|plans\.logical\.LocalRelation)$")
"""Their fields are values. (An object of Scala, whose name ends with $, has none.)"""


class PlanPart(NamedTuple):
    """One part: the name of its class, and itself in the JVM."""

    name: str
    java: Any

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


def parts(plan: Any) -> Iterator[PlanPart]:
    """Yield `plan` itself, then its parts, but for containers and what has no parts.

    A part is looked into after it was judged by whoever takes it from here: one that may not be there need have no
    fields that can be followed.
    """
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, JavaObject):
            continue
        name = str(one.getClass().getName())
        if name.startswith("scala.collection."):
            items = one.toIndexedSeq()
            waiting += [items.apply(at) for at in range(items.length())]
        elif _NO_PARTS.match(name) is None:
            is_container = _CONTAINERS.match(name) is not None
            if not is_container:
                yield PlanPart(name, one)
            if is_container or (_WHOLE.match(name) is None and not name.endswith("$")):
                waiting += [one.productElement(at) for at in range(one.productArity())]


class StatementKind(Enum):
    """The kind of result that a statement has."""

    QUERY = "rows"
    DESCRIPTION = "what Spark knows: of tables, columns, plans"
    SETTING = "nothing; the session is another"


_SQL: Final = "org.apache.spark.sql"


_CATALYST: Final = f"{_SQL}.catalyst"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NODES: Final = _names(
    """
    Aggregate DataFrameDropColumns Distinct Except Filter Generate GlobalLimit Intersect LimitAll Join JoinHint
    LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot Project Range RepartitionByExpression Sample
    SampleMethod$Bernoulli$ SampleMethod$System$ Sort SubqueryAlias Union Unpivot UnresolvedHint UnresolvedWith
    WithWindowDefinition
    """
)


_UNRESOLVED: Final = _names(
    """
    MultiAlias RelationTimeTravel UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction
    UnresolvedFunctionName UnresolvedGenerator UnresolvedHaving UnresolvedInlineTable UnresolvedNamespace
    UnresolvedOrdinal UnresolvedPipeAggregateOrdinal UnresolvedQualify UnresolvedRegex UnresolvedRelation
    UnresolvedSeed UnresolvedWithinGroup UnresolvedTableOrViewSearchPathMode$Ddl$
    UnresolvedTableOrViewSearchPathMode$QueryLike$ UnresolvedStar UnresolvedStarExceptOrReplace
    UnresolvedStarWithColumns UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTable
    UnresolvedTableOrView UnresolvedTableValuedFunction CurrentNamespace$ GlobalTempView$ LocalTempView$
    SchemaBinding$ SchemaCompensation$ SchemaEvolution$ SchemaTypeEvolution$ SchemaUnsupported$
    """
)


_COMMANDS: Final = _names(
    "CreateSQLFunctionCommand CreateTempViewUsing CreateViewCommand ResetCommand SetCommand ExplainCommand"
)


_DESCRIPTION: Final = re.compile(r"(Show|Describe)\w+|ExplainCommand")


_PARTS: Final = re.compile(
    rf"{re.escape(_CATALYST)}\.plans\.logical\.({'|'.join(map(re.escape, _NODES))}|Show\w+|Describe\w+)"
    rf"|{re.escape(_CATALYST)}\.analysis\.({'|'.join(map(re.escape, _UNRESOLVED))})"
    rf"|{re.escape(_SQL)}\.execution\.(command|datasources)\.({'|'.join(_COMMANDS)}|Show\w+|Describe\w+)"
    rf"|{re.escape(_SQL)}\.execution\.\w+Mode\$"
    rf"|{re.escape(_SQL)}\.delta\.(UnresolvedPathBased\w+|commands\.DescribeDelta\w+)"
)


_EXPRESSIONS: Final = re.compile(rf"{re.escape(_CATALYST)}\.expressions\.((aggregate|variant|json|csv|st)\.)?\w+\$?")


REACH_OUT: Final = frozenset(
    f"{_CATALYST}.expressions.{name}"
    for name in _names(
        """
        CallMethodViaReflection TryReflect TryReflectExpressionBuilder ScalaUDF PythonUDF PythonUDAF PythonUDTF
        UnresolvedPythonUDTF UnresolvedPolymorphicPythonUDTF UserDefinedGenerator ApplyFunctionExpression
        TransformExpression PartitionTransformExpression aggregate.V2Aggregator FromAvro FromProtobuf ToAvro
        ToProtobuf
        """
    )
)


"""Spark's expressions that run foreign methods or functions, or read a file that the query names.

XPath, in a package of its own, opens whatever address a document gives for its DTD."""


_WITHOUT_OPTIONS: Final = {f"{_CATALYST}.expressions.XmlToStructs": 2, f"{_CATALYST}.expressions.SchemaOfXml": 1}


"""Functions whose options may name a place, with the number of arguments that come before them."""


_SETTING: Final = re.compile(
    r"spark\.sql\.((adaptive|ansi|cbo|codegen|execution\.arrow|files|join|optimizer|shuffle)\.(?![\w.]*Class\b)[\w.]+"
    r"|autoBroadcastJoinThreshold|broadcastTimeout|caseSensitive|crossJoin\.enabled|mapKeyDedupPolicy"
    r"|session\.timeZone|timestampType)"
)


"""Settings that SET may change: how a query is run and read, but nothing that names code, a file or a catalog."""


_VARIABLES: Final = "spark.sql.variable.substitute"


_OF_THE_SESSION: Final = "sql_udf"


"""Where Spark says that a function comes from whose body is SQL: only CREATE TEMPORARY FUNCTION makes them here."""


_DEFAULT: Final = re.compile(r"\bdefault\b", re.I)


def may_be_there(name: str) -> bool:
    """Whether a parsed plan may have a part of this class."""
    return _PARTS.fullmatch(name) is not None or (_EXPRESSIONS.fullmatch(name) is not None and name not in REACH_OUT)


@dataclass(frozen=True, slots=True)
class Authority:
    """Decides what statements of the session `spark` may do; its replica is in `warehouse`."""

    spark: SparkSession
    warehouse: Place = LOCAL

    def kind_of(self, statement: Statement) -> StatementKind:
        """Judge a statement without its names of tables and functions, which statements before it may make.

        Raises QueryError where it would do what it must not, PySpark's ParseException where Spark cannot read it.
        """
        return _kind(_Judgement(self, statement).of_forms()[0].simple_name)

    def frame_of(self, statement: Statement, tables: Callable[[], Iterable[str]]) -> DataFrame:
        """Judge a statement by all that the session knows, and run it; `tables` names its tables and views.

        Raises as `kind_of`, and PySpark's exceptions where Spark cannot make a plan, or run a command.
        """
        judgement = _Judgement(self, statement)
        plan = judgement.of_names(judgement.of_forms(), tables)
        dataset = getattr(cast(Any, self.spark._jvm).org.apache.spark.sql.classic, "Dataset$")
        return DataFrame(getattr(dataset, "MODULE$").ofRows(self.spark._jsparkSession, plan), self.spark)


def _kind(root: str) -> StatementKind:
    if _DESCRIPTION.fullmatch(root) is not None:
        return StatementKind.DESCRIPTION
    return StatementKind.SETTING if root in _COMMANDS else StatementKind.QUERY


class _Judgement:
    """Judges one statement."""

    def __init__(self, authority: Authority, statement: Statement) -> None:
        self._spark, self._warehouse, self._statement = authority.spark, authority.warehouse, statement
        # Parsers ask the active session for its settings
        cast(Any, self._spark._jvm).org.apache.spark.sql.classic.SparkSession.setActiveSession(
            self._spark._jsparkSession
        )
        self._spark.conf.set(_VARIABLES, "false")  # whatever a RESET has left
        self._state = self._spark._jsparkSession.sessionState()
        self._plan = self._state.sqlParser().parsePlan(statement.text)

    def of_forms(self) -> list[PlanPart]:
        """Check every part of the statement, and of a function's body. Raises QueryError."""
        found, waiting = list[PlanPart](), [self._plan]
        while waiting:
            for part in parts(waiting.pop()):
                if not may_be_there(part.name):
                    raise self._only_reads(" ".join(self._statement.text.split()[:3]))
                self._check(part)
                if part.simple_name == "CreateSQLFunctionCommand":
                    waiting += self._bodies(part.java)
                found.append(part)
        return found

    def of_names(self, found: list[PlanPart], tables: Callable[[], Iterable[str]]) -> Any:
        """Return the plan. Raises QueryError for a table or a function that is not the session's."""
        withs = {name.lower() for one in found if one.simple_name == "UnresolvedWith" for name in self._withs(one.java)}
        for name, java in ((one.simple_name, one.java) for one in found):
            if name in ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView"):
                self._check_known(java, withs, tables)
            elif name == "UnresolvedFunction":
                self._check_call(self._texts(java.nameParts()), java.arguments(), "lookupBuiltinOrTempFunction")
            elif name == "UnresolvedGenerator":
                self._check_call([java.name().funcName()], java.children(), "lookupBuiltinOrTempFunction")
            elif name == "UnresolvedTableValuedFunction":
                self._check_call(self._texts(java.name()), java.functionArgs(), "lookupBuiltinOrTempTableFunction")
        return self._plan

    def _check(self, part: PlanPart) -> None:
        name, java = part.simple_name, part.java
        if name in ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView"):
            names = self._texts(java.multipartIdentifier())
            if self._is_file(names):
                self._check_place(names[1])
        is_path = name.startswith("UnresolvedPathBased")
        if is_path:
            self._check_place(java.path())
        if is_path or name in ("UnresolvedRelation", "CreateTempViewUsing"):
            self._check_options(java.options())
        if name == "UnresolvedRelation" and java.isStreaming():
            raise self._only_reads("a stream")
        if name == "CreateTempViewUsing" and java.provider().lower() not in FORMATS:
            raise self._only_reads(f"USING {java.provider()}", f"USING {', '.join(FORMATS)}")
        if name == "SetCommand" and java.kv().isDefined() and not _SETTING.fullmatch(java.kv().get()._1()):
            raise self._only_reads(f"SET {java.kv().get()._1()}", "a setting of spark.sql for how queries are run")

    def _bodies(self, function: Any) -> list[Any]:
        """Parse the body of a function, which its command has as text."""
        if any(_DEFAULT.search(one.get()) for one in (function.inputParamText(),) if one.isDefined()):
            raise self._only_reads("DEFAULT", "functions whose arguments are all given")
        parser, expression, query = self._state.sqlParser(), function.exprText(), function.queryText()
        made = [parser.parseExpression(expression.get())] if expression.isDefined() else []
        return made + ([parser.parsePlan(query.get())] if query.isDefined() else [])

    def _check_place(self, text: str) -> None:
        if not is_reachable(text, self._warehouse):
            raise self._only_reads(text, "a path of file: or of the warehouse's own store")
        if placed(text).scheme is None:
            check_one_place(self._spark, text)

    def _check_options(self, given: Any) -> None:
        is_java = isinstance(given, JavaMap)
        options = dict(given if is_java else self._java_names.scala.jdk.javaapi.CollectionConverters.asJava(given))
        refused = unreachable_option(options, self._warehouse)
        if refused is not None:
            raise self._only_reads(f"the option {refused}", "options of the files' format alone")

    def _check_known(self, java: Any, withs: set[str], tables: Callable[[], Iterable[str]]) -> None:
        """Refuse a table that is neither a view of the session, nor a WITH of the statement, nor a file."""
        names = self._texts(java.multipartIdentifier())
        if self._is_file(names) or (len(names) == 1 and names[0].lower() in withs):
            return
        if not self._state.catalog().isTempView(java.multipartIdentifier()):
            if len(names) > 1:
                raise self._only_reads(".".join(names), "tables and views of the replica and the session, and files")
            line = java.origin().line()
            raise no_table(names[0], tables(), self._statement, line.get() if line.isDefined() else 1)

    def _check_call(self, names: list[str], arguments: Any, lookup: str) -> None:
        found = getattr(self._state.catalog(), lookup)(names[0]) if len(names) == 1 else None
        if found is None or not found.isDefined():
            raise self._only_reads(f"{'.'.join(names)}()", "functions of Spark and of the session")
        name = found.get().getClassName()
        if not (may_be_there(name) or found.get().getSource() == _OF_THE_SESSION):
            raise self._only_reads(f"{names[0]}(), which may run a program or reach elsewhere", "queries that read")
        most = _WITHOUT_OPTIONS.get(name)
        if most is not None and arguments.length() > most:
            raise self._only_reads(f"options of {names[0]}()", f"{names[0]}() without options")

    def _is_file(self, names: list[str]) -> bool:
        return len(names) == 2 and names[0].lower() in FORMATS

    def _withs(self, java: Any) -> list[str]:
        pairs = java.cteRelations().toIndexedSeq()
        return [pairs.apply(at)._1() for at in range(pairs.length())]

    def _texts(self, names: Any) -> list[str]:
        return [names.apply(at) for at in range(names.length())]

    @property
    def _java_names(self) -> Any:
        return java_names(self._spark)

    def _only_reads(
        self, found: str, expected: str = "SELECT, WITH, SHOW, DESCRIBE, EXPLAIN, SET or CREATE TEMPORARY VIEW"
    ) -> QueryError:
        return QueryError(
            f"line {self._statement.line}: this session only reads, and reaches nothing else",
            expected=expected,
            found=found,
            hint="docs/sql.md says what it runs. Spark itself, with register() of logtwin, runs the rest.",
        )
