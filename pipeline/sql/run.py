"""Run statements one after the other and write what they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from pipeline.sql.authority import StatementKind
from pipeline.sql.formats import TABLE_CHARACTERS, WrittenRows, writer
from pipeline.sql.output import Format
from pipeline.sql.reader import Checked, Reader
from pipeline.system.console import err
from sources.errors import QueryError

Tell = Callable[[str], None]


def say(line: str) -> None:
    """On standard error."""
    err.print(line, highlight=False)


def run_text(reader: Reader, text: str, form: Format, sink: BinaryIO, width: int | None, tell: Tell = say) -> None:
    """All statements of `text`, once all of them are found sound; what settings answer is not written.

    `width` is a terminal's, None of anything else. `tell` gets what is not part of a result.
    Raises QueryError, ReplicaError, and what `sink` raises.
    """
    checked = reader.check(text)
    results = sum(one.kind is not StatementKind.SETTING for one in checked)
    if not checked:
        raise QueryError("there is no statement to run", hint="Give one with -e, -f or on standard input.")
    if form == "parquet" and results != 1:
        raise QueryError("a Parquet file holds one result", expected="one query", found=results)
    is_first = True
    for one in checked:
        if one.kind is StatementKind.SETTING:
            reader.answer(one, lambda _: None)
            continue
        if not is_first and form in ("table", "csv"):
            sink.write(b"\n")
        is_first = False
        run_one(reader, one, form, sink, width, tell)


def run_one(
    reader: Reader, one: Checked, form: Format, sink: BinaryIO, width: int | None, tell: Tell = say
) -> WrittenRows:
    """One statement. Tells where rows were left out."""
    write = writer(form, width=width, most=TABLE_CHARACTERS if one.kind is StatementKind.QUERY else None)
    written = reader.answer(one, lambda frame: write(frame, sink) if frame.columns else WrittenRows(0))
    sink.flush()
    if written.is_cut:
        tell(f"the first {written.rows:,} rows of more: --format csv, json and parquet write all")
    return written
