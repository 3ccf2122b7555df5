"""What could come next in a statement: tables, their columns, functions, keywords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from pipeline.sql.statements import is_open
from sources.visible import visible

_TYPED: Final = re.compile(r"(?P<ahead>.*?)(?P<word>\w*)\Z", re.S)
_WANTS_TABLE: Final = re.compile(r"(?:\b(?:FROM|JOIN|TABLE|DESCRIBE|DESC)|\\d)\s+\Z", re.I)
_WANTS_COLUMN: Final = re.compile(r"(\w+)\.\Z")


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
        """For the word that `before`, the text up to the cursor, ends with; what is likeliest comes first."""
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
    """Those that begin with `word`, each once; in small letters where `word` is. A name with a control character, which
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
