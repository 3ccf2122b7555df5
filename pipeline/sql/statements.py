"""A text of SQL as its statements, by the rules of Spark's lexer (`SqlBaseLexer.g4`), without Java. Pure.

A semicolon ends a statement, but not inside of one of these:

========== ==============================================================================
``'…'``    a string, also in double quotes; a backslash escapes the next character
``r'…'``   a string without escapes, also in double quotes
```…```    a name
``-- …``   a comment up to the end of the line, and on where that ends with a backslash
``/* … */`` a comment; may hold others
========== ==============================================================================

A hint, ``/*+ … */``, is no comment: what stands in it are words and strings as elsewhere. Tokenizers of libraries know
Spark's SQL less exactly: sqlglot 30 splits at the semicolon in a ``--`` comment that a backslash continues, fails at
``SET x = 'a``, which Spark reads, and says of a string without an end only that it has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

_PIECE: Final = re.compile(
    r"""
      (?P<end> ; )
    | (?P<blank> \s+ | --(?:\\\n|[^\r\n])*+ )
    | (?P<comment> /\*(?!\+) )
    | (?P<code>
        [rR](?:'[^']*+'|"[^"]*+")
        | '[^'\\]*+(?:\\.[^'\\]*+)*+'
        | "[^"\\]*+(?:\\.[^"\\]*+)*+"
        | `[^`]*+`
        | \w+
        | \*/
        | [^'"`]
      )
    | (?P<open> .+ )
    """,
    re.X | re.S,
)
_COMMENT_EDGE: Final = re.compile(r"/\*(?!\+)|\*/")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement from its first word on, without the semicolon. It begins in `line` of the whole text, from 1."""

    text: str
    line: int = 1


class Split(NamedTuple):
    """`rest` is what no semicolon ends, None where there is nothing but blanks and comments."""

    statements: tuple[Statement, ...]
    rest: Statement | None

    @property
    def all(self) -> tuple[Statement, ...]:
        """All statements, with the rest as the last one: a file need not end with a semicolon."""
        return self.statements if self.rest is None else (*self.statements, self.rest)


def split(text: str) -> Split:
    """The statements of `text`, without those that are empty. Every text can be split."""
    found: list[Statement] = []
    first: int | None = None  # where the statement began that has not ended
    for kind, start, _ in _pieces(text):
        if kind in ("code", "open") and first is None:
            first = start
        elif kind == "end" and first is not None:
            found.append(_statement(text, first, start))
            first = None
    return Split(tuple(found), None if first is None else _statement(text, first, len(text)))


def is_open(text: str) -> bool:
    """Whether it ends inside of a string, a quoted name or a comment with an end."""
    return any(kind == "open" for kind, _, _ in _pieces(text))


def _statement(text: str, start: int, end: int) -> Statement:
    return Statement(text[start:end].rstrip(), text.count("\n", 0, start) + 1)


def _pieces(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each piece; ``open`` is a string, name or comment that the text does not end."""
    at = 0
    while piece := _PIECE.match(text, at):
        kind, end = str(piece.lastgroup), piece.end()
        if kind == "comment":
            kind, end = _comment(text, end)
        yield kind, at, end
        at = end


def _comment(text: str, at: int) -> tuple[str, int]:
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return "blank", edge.end()
    return "open", len(text)
