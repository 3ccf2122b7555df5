"""The definition of a view, as read from its ``.sql`` file: name, comments, query.

A file is one Spark SQL statement. It can be run wherever the tables and views that it reads are known by their bare
names::

    CREATE VIEW name (
      column COMMENT '…',
      …
    )
    COMMENT '…'
    AS
    SELECT …

Every column has a comment. `VIEWS` is an order in which they can be created: a view reads only tables and views before
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

VIEWS: Final = (
    "records",
    "consume_queue",
    "batch_consume_queue",
    "message_index",
    "messages",
    "transactions",
    "delayed_messages",
    "retries",
    "dead_letters",
    "consumer_lag",
    "topic_stats",
    "kafka_records",
    "kafka_lag",
    "completeness",
)

_HEAD: Final = "CREATE VIEW "
_STATEMENT: Final = re.compile(
    rf"{_HEAD}(?P<name>\w+) \(\n(?P<columns>.*?)\n\)\nCOMMENT '(?P<comment>[^']*)'\nAS\n", re.S
)
_WORD: Final = re.compile(r"\w+")
_COLUMN: Final = re.compile(r"^  (\w+) COMMENT '([^']*)',?$", re.M)


@dataclass(frozen=True, slots=True)
class View:
    """A view. `columns` are names with their comments, in order; `statement` is the whole file."""

    name: str
    comment: str
    columns: dict[str, str]
    statement: str

    @property
    def query(self) -> str:
        return self.statement.partition("\nAS\n")[2]

    def created(self, *, temporary: bool) -> str:
        """The statement that creates or replaces the view, `temporary` in the session, or in the current schema."""
        scope = "TEMPORARY VIEW" if temporary else "VIEW"
        return f"CREATE OR REPLACE {scope} {self.statement[self.statement.index(_HEAD) + len(_HEAD) :]}"


def named_in(*statements: str) -> tuple[str, ...]:
    """The views whose names are in these statements, and those that they read in turn, in the order of `VIEWS`."""
    words = words_in(*statements)
    return tuple(name for name in VIEWS if name in words)


def words_in(*statements: str) -> frozenset[str]:
    """The words, in lower case, of these statements and of the views that they name in turn: the name of every table or
    view that they read is among them.
    """
    words = {word.lower() for statement in statements for word in _WORD.findall(statement)}
    for name in reversed(VIEWS):  # a view reads only views before it
        if name in words:
            words.update(_WORD.findall(view(name).query.lower()))
    return frozenset(words)


@cache
def view(name: str) -> View:
    """The view `name`. Raises ValueError if its file has not the right form."""
    statement = resources.files("sinks.views").joinpath(f"{name}.sql").read_text(encoding="utf-8")
    found = _STATEMENT.search(statement)
    if found is None or found["name"] != name:
        raise ValueError(f"{name}.sql is not CREATE VIEW {name} (columns) COMMENT … AS query")
    columns = dict(_COLUMN.findall(found["columns"]))
    if len(columns) != len(found["columns"].splitlines()):
        raise ValueError(f"{name}.sql: one column a line, each once and with a comment")
    return View(name, found["comment"], columns, statement)
