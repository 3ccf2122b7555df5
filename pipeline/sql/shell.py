"""``logtwin sql`` on a terminal: a prompt with history and completion; a statement ends with a semicolon."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from pipeline.cache import cache_folder
from pipeline.console import err, out, report
from pipeline.sql.completion import NameCompleter, Names
from pipeline.sql.grammar import Kind
from pipeline.sql.output import Format
from pipeline.sql.reader import Reader
from pipeline.sql.run import run_one
from pipeline.sql.statements import split
from pipeline.tables import listed, relation_lines
from sinks.tables import TABLES
from sinks.views.definition import VIEWS, view
from sources.errors import LogtwinError

HELP: Final = r"""A statement of Spark SQL ends with a semicolon, and may have many lines. It can only read.

  \d          tables and views        \d NAME     the columns of one
  \q, Ctrl-D  leave                   Ctrl-C      forget what is typed, or stop what runs
  Tab         complete                Ctrl-R      search what was typed before

  SELECT topic, count(*) FROM messages GROUP BY topic;"""
_LEAVE: Final = (r"\q", "quit", "exit")
_HELP: Final = (r"\?", r"\h", "help")
_LIST: Final = r"\d"


class Shell:
    """Asks for statements and answers them, until it is left."""

    def __init__(self, reader: Reader, form: Format) -> None:
        self._reader = reader
        self._form = form
        self._completer = NameCompleter(known_names(reader))

    def run(self) -> None:
        """Return when somebody leaves."""
        prompt = self._prompt()
        err.print(r"help explains, \q leaves", highlight=False)
        while True:
            try:
                text = prompt.prompt("logtwin> ").strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if _bare(text) in _LEAVE:
                return
            self._obey(text)

    def _prompt(self) -> PromptSession[str]:
        return PromptSession(
            history=FileHistory(str(_history_file())),
            completer=self._completer,
            complete_while_typing=True,
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            prompt_continuation="      -> ",
            key_bindings=_bindings(),
        )

    def _obey(self, text: str) -> None:
        try:
            self._answer(text)
        except LogtwinError as error:
            report(error)
        except KeyboardInterrupt:
            err.print("stopped")

    def _answer(self, text: str) -> None:
        word, _, name = _bare(text).partition(" ")
        if word in _HELP:
            out.print(HELP, markup=False, highlight=False)
        elif word == _LIST:
            self._run(f"DESCRIBE {name}") if name else self._list()
        else:
            self._run(text)

    def _list(self) -> None:
        out.print("\n".join(relation_lines(listed())), markup=False, highlight=False, soft_wrap=True)

    def _run(self, text: str) -> None:
        for one in self._reader.check(text):
            began_s = time.monotonic()
            written = run_one(self._reader, one, self._form, sys.stdout.buffer, out.width)
            err.print(f"{written.rows:,} rows, {time.monotonic() - began_s:,.1f} s", highlight=False)
            if one.kind is Kind.SETTING:
                self._completer.names = known_names(self._reader)


def known_names(reader: Reader) -> Names:
    """What can be completed."""
    spark = reader.spark
    tables = {name: tuple(view(name).columns) for name in VIEWS} | {one.name: tuple(one.schema.names) for one in TABLES}
    own = (name for name in reader.tables() if name not in tables)
    return Names(
        tables=tables | {name: tuple(spark.table(name).columns) for name in own},
        functions=tuple(row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()),
        keywords=tuple(row[0] for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()),
    )


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if _is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def _is_finished(text: str) -> bool:
    """Whether Enter runs it: every statement has its semicolon, or it is a word of the shell's own."""
    word = _bare(text).partition(" ")[0]
    return word.startswith("\\") or word in (*_LEAVE, *_HELP) or split(text).rest is None


def _bare(text: str) -> str:
    return text.strip().rstrip(";").strip()


def _history_file() -> Path:
    """Only for its owner: a query may name what is in messages."""
    file = cache_folder() / "sql_history"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return file
