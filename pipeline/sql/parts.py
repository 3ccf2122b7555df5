"""The parts of a plan that Spark's parser has made: nodes, expressions, and whatever else is in them.

Every field of every part is followed, whatever it is called: of an unresolved plan neither `children` nor `toJSON` has
all (a WITH is in pairs, a WINDOW clause in a map).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from py4j.java_gateway import JavaObject

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
    """`plan` itself first, then what is in it, but for containers and what has no parts.

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
