"""What becomes of a failure that nobody thought of, while a record is decoded: the one place that decides. Pure.

What stands in a log is written by others. A value that a decoder has no answer to must not end the log: it would end
there again at each start, whatever `on_loss` says, and without a name. So whatever a decoder raises over a record is
damage of that record, and goes the way of all damage: an error that names the log and the offset, or a place in
quarantine. Where many records are decoded at once, the first of them that makes their decoder fail is found.

No record is to blame for what the machine lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from sources.errors import CorruptRecord, LogtwinError

NOT_THE_RECORDS: tuple[type[Exception], ...] = (MemoryError, OSError, ImportError)
_HINT: Final = (
    "Please report the record's bytes as a bug of logtwin's. With on_loss = record they go to quarantine, and the log "
    "goes on behind them."
)
_T = TypeVar("_T")


@contextmanager
def as_damage(offset: int | None) -> Iterator[None]:
    """What a decoder raises inside, of the record or the records at `offset`, as CorruptRecord. Errors of logtwin's
    stay what they are, and so does what the machine is to blame for.
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
    """The same error at `offset`; without its traceback, which would hold the bytes that were decoded."""
    facts = {name: fact for name, fact in error.facts().items() if name not in ("type", "problem")}
    return type(error)(error.problem, **{**facts, "offset": offset})


def up_to_damage(count: int, decode: Callable[[int], _T]) -> tuple[_T, int, CorruptRecord | None]:
    """What `decode` gives of the first `count` records. Where it raises CorruptRecord: what it gives of those before
    the first one that makes it, how many these are, and that error. It is given 0 records, too.

    Takes as many attempts as `count` has binary digits, not one a record.
    """
    damage: CorruptRecord | None = None
    passing, failing = 0, count + 1  # of the first `failing` records it would fail, or there are not so many
    decoded: tuple[_T] | None = None
    tried = count
    while failing - passing > 1 or decoded is None:
        try:
            decoded, passing = (decode(tried),), tried
        except CorruptRecord as error:
            damage, failing = placed(error, error.offset), tried
        tried = (passing + failing) // 2
    return decoded[0], passing, damage
