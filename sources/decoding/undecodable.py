"""The handling of unforeseen failures while a record is decoded; only this module decides about them. Pure.

Others write what is in a log. A value that a decoder has no answer to must not end the log: it would end there again at
each start, whatever `on_loss` says, with an error that names nothing. So whatever a decoder raises over a record counts
as damage of that record and is treated like all damage: it becomes an error that names the log and the offset, or goes
to quarantine. If many records are decoded at once, the first one that makes the decoder fail is found.

A lack of resources on the machine is never blamed on a record. If memory does not suffice for many records, fewer are
decoded at once; if it does not for one, an error names that record, because trying again would end there again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from sources.errors import CorruptRecord, LogtwinError, OutOfMemory

NOT_THE_RECORDS: tuple[type[Exception], ...] = (MemoryError, OSError, ImportError)
_HINT: Final = (
    "Please report the record's bytes as a bug of logtwin's. With on_loss = record they go to quarantine, and the log "
    "goes on behind them."
)
_T = TypeVar("_T")


@contextmanager
def as_damage(offset: int | None) -> Iterator[None]:
    """Turn what a decoder raises inside, over the record or records at `offset`, into CorruptRecord.

    Errors of logtwin stay as they are, and so do errors that the machine is to blame for.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (LogtwinError, *NOT_THE_RECORDS)):
            raise
        raise CorruptRecord(
            "the record makes its decoder fail",
            offset=offset,
            expected="values, or a check that refuses them",
            found=f"{type(error).__name__}: {error!s:.200}",
            hint=_HINT,
        ) from error


def placed(error: CorruptRecord, offset: int | None) -> CorruptRecord:
    """Return the same error at `offset`, without its traceback, which would keep the decoded bytes alive."""
    facts = {name: fact for name, fact in error.facts().items() if name not in ("type", "problem")}
    return type(error)(error.problem, **{**facts, "offset": offset})


class TooCostly(MemoryError):
    """Records would take more memory than they may."""


def up_to_damage(
    count: int, decode: Callable[[int], _T], offset: int | None = None
) -> tuple[_T, int, CorruptRecord | None]:
    """Return what `decode` gives for the first `count` records, the number decoded, and the error, if any.

    If it raises CorruptRecord, these are the records before the first one that makes it fail. If it raises MemoryError,
    these are fewer records, without an error: go on behind them. `decode` must accept 0 records. The number of attempts
    is that of the binary digits of `count`.

    Raises OutOfMemory, TooCostly if one record alone, that at `offset`, takes too much.
    """
    try:
        return _up_to_damage(count, decode)
    except MemoryError as error:
        if count > 1:
            return up_to_damage(count // 2, decode, offset)
        if isinstance(error, TooCostly):
            raise
        raise OutOfMemory(
            "there is not enough memory to decode a record",
            offset=offset,
            found=f"{error!s:.200}" or None,
            hint="Give Spark's Python workers more memory, or let fewer of them run at once.",
        ) from error


def _up_to_damage(count: int, decode: Callable[[int], _T]) -> tuple[_T, int, CorruptRecord | None]:
    damage: CorruptRecord | None = None
    passing, failing = 0, count + 1  # the first `failing` records would fail, or there are fewer
    decoded: tuple[_T] | None = None
    tried = count
    while failing - passing > 1 or decoded is None:
        try:
            decoded, passing = (decode(tried),), tried
        except CorruptRecord as error:
            if not tried:
                raise  # it fails over nothing, too: the decoder itself is broken
            damage, failing = placed(error, error.offset), tried
        tried = (passing + failing) // 2
    return decoded[0], passing, damage
