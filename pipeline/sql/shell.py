"""``logtwin sql`` on a terminal: a prompt with history and completion; a statement ends with a semicolon.

The prompt is there at once, and the replica is opened behind it: only a statement waits for that. So nothing here needs
Spark before.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.patch_stdout import patch_stdout
from pygments.lexers.sql import SqlLexer

from pipeline.sql.output import Format, paged
from pipeline.sql.statements import is_open, split
from pipeline.system.console import err, out, report
from pipeline.system.folders import cache_folder
from pipeline.system.signals import ctrl_c_raises
from sources.errors import LogtwinError
from sources.readable import visible

if TYPE_CHECKING:
    from pipeline.sql.reader import Reader

_TYPED: Final = re.compile(r"(?P<ahead>.*?)(?P<word>\w*)\Z", re.S)
_WANTS_TABLE: Final = re.compile(r"(?:\b(?:FROM|JOIN|TABLE|DESCRIBE|DESC)|\\d)\s+\Z", re.I)
_WANTS_COLUMN: Final = re.compile(r"(\w+)\.\Z")

HELP: Final = r"""A statement of Spark SQL ends with a semicolon, and may have many lines. It can only read.

  \d          tables and views        \d NAME     the columns of one
  \q, Ctrl-D  leave                   Ctrl-C      forget what is typed, or stop what runs
  Tab         complete                Ctrl-R      search what was typed before

  SELECT topic, count(*) FROM messages GROUP BY topic;"""
_LEAVE: Final = (r"\q", "quit", "exit")
_HELP: Final = (r"\?", r"\h", "help")
_LIST: Final = r"\d"


class Suggestion(NamedTuple):
    """A word, and what it is."""

    word: str
    what: str


@dataclass(frozen=True, slots=True)
class Names:
    """`tables` are all tables and views with their columns."""

    tables: Mapping[str, tuple[str, ...]]
    functions: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()

    def suggestions(self, before: str, after: str = "") -> list[Suggestion]:
        """Suggest for the last word of `before`, the text up to the cursor; the likeliest comes first."""
        typed = _TYPED.match(before)
        if typed is None or is_open(before):
            return []
        ahead, word = typed["ahead"], typed["word"]
        if dotted := _WANTS_COLUMN.search(ahead):
            return _beginning(word, self._columns(self._table(dotted[1], before + after)))
        if _WANTS_TABLE.search(ahead):
            return _beginning(word, self._tables())
        return _beginning(word, self._all(before + after)) if word else []

    def _all(self, text: str) -> Iterator[Suggestion]:
        named = [name for name in self.tables if re.search(rf"\b{name}\b", text, re.I)]
        for name in named:
            yield from self._columns(name)
        yield from self._tables()
        yield from (Suggestion(name, "function") for name in self.functions)
        yield from (Suggestion(name, "keyword") for name in self.keywords)

    def _tables(self) -> Iterator[Suggestion]:
        return (Suggestion(name, "table") for name in self.tables)

    def _columns(self, table: str | None) -> Iterator[Suggestion]:
        return (Suggestion(name, f"column of {table}") for name in self.tables.get(table or "", ()))

    def _table(self, name: str, text: str) -> str | None:
        """The table of that name, or that `text` gives that name."""
        if name.lower() in self.tables:
            return name.lower()
        aliases = re.finditer(rf"\b(\w+)\s+(?:AS\s+)?{name}\b", text, re.I)
        return next((found[1].lower() for found in aliases if found[1].lower() in self.tables), None)


def _beginning(word: str, suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Names that begin with `word`, each once; in small letters if `word` is. A name with a control character, which
    a producer may give a field, is not offered: it would be typed.
    """
    found: dict[str, Suggestion] = {}
    for one in suggestions:
        if one.word.lower().startswith(word.lower()) and visible(one.word) == one.word:
            spelled = one.word.lower() if word.islower() else one.word
            found.setdefault(spelled, Suggestion(spelled, one.what))
    return list(found.values())


class NameCompleter(Completer):
    """The suggestions of `names` at the prompt; `names` may be replaced by newer ones."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        word = document.get_word_before_cursor(pattern=re.compile(r"\w+"))
        for one in self.names.suggestions(document.text_before_cursor, document.text_after_cursor):
            yield Completion(one.word, start_position=-len(word), display_meta=one.what)


class Shell:
    """Asks for statements and answers them, until it is left. `opening` opens the replica, in another thread."""

    def __init__(self, opening: Callable[[], Reader], form: Format) -> None:
        self._opening = opening
        self._form = form
        self._completer = NameCompleter(Names({}))
        self._prompt = self._made_prompt()
        self._opened: Future[Reader] = Future()

    def run(self) -> None:
        """Return when somebody leaves. Raises what opening the replica raises, whatever is typed."""
        err.print(r"help explains, \q leaves", highlight=False)
        # who leaves at once does not wait for it
        threading.Thread(target=self._open, daemon=True).start()
        with ctrl_c_raises():
            self._ask()

    def _ask(self) -> None:
        while True:
            try:
                with patch_stdout(raw=True):
                    text = self._prompt.prompt("logtwin> ", pre_run=self._end_if_failed).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if _bare(text) in _LEAVE:
                return
            self._obey(text)

    def _open(self) -> None:
        try:
            reader = self._opening()
            self._completer.names = known_names(reader)
            self._opened.set_result(reader)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._opened.set_exception(error)
            loop = self._prompt.app.loop
            if loop is not None:
                loop.call_soon_threadsafe(self._end_if_failed)

    def _end_if_failed(self) -> None:
        """Leave the prompt if opening failed. Runs in the prompt's thread."""
        app = self._prompt.app
        error = self._opened.exception() if self._opened.done() else None
        if error is not None and app.future is not None and not app.future.done():
            app.exit(exception=error)

    @property
    def _reader(self) -> Reader:
        if self._opened.done():
            return self._opened.result()
        with err.status("opening the replica …"):
            return self._opened.result()

    def _made_prompt(self) -> PromptSession[str]:
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
            if self._opened.done() and self._opened.exception() is not None:
                raise  # there is nothing that could be asked
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
        from pipeline.inspect.tables import listed, relation_table

        out.print(relation_table(listed(), self._reader.known()))

    def _run(self, text: str) -> None:
        from pipeline.sql.authority import StatementKind
        from pipeline.sql.reader import run_one

        for one in self._reader.check(text):
            began_s = time.monotonic()
            is_paged = self._form == "table" and out.is_terminal
            with paged(out.height) if is_paged else nullcontext(sys.stdout.buffer) as sink:
                written = run_one(self._reader, one, self._form, sink, out.width)
            rows = "1 row" if written.rows == 1 else f"{written.rows:,} rows"
            err.print(f"{rows}, {time.monotonic() - began_s:,.1f} s", highlight=False)
            if one.kind is StatementKind.SETTING:
                self._completer.names = known_names(self._reader)


def known_names(reader: Reader) -> Names:
    from sinks.tables import TABLES
    from sinks.views.definition import VIEWS, view

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
    """Whether Enter runs the text: every statement has its semicolon, or it is a word of the shell's own."""
    word = _bare(text).partition(" ")[0]
    return word.startswith("\\") or word in (*_LEAVE, *_HELP) or split(text).rest is None


def _bare(text: str) -> str:
    return text.strip().rstrip(";").strip()


def _history_file() -> Path:
    """The file of the history, readable by its owner alone: a query may name what is in messages."""
    file = cache_folder() / "sql_history"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return file
