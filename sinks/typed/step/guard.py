"""Find the messages that make a task's work fail, so that they are named and the others are not held up. Pure.

Producers write what is in a message. A value that a parser has no answer to must not stop a table: it would stop there
again at each try, with an error that names nothing. So what is raised over one message is a fact about that message.
A lack of resources, and logtwin's own errors (a registry that does not answer), are no message's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from sources.decoding.undecodable import NOT_THE_RECORDS
from sources.errors import LogtwinError

READER_FAILED: Final = "reader_failed"
"""The reason of a misfit that makes its reader fail in a way that nobody has foreseen."""
WORKER_DIED: Final = "worker_died"
"""The reason of a misfit at which Spark's workers die (`sinks/typed/step/suspects.py`)."""
_SHOWN: Final = 200
_T = TypeVar("_T")


def in_sound_parts(
    work: Callable[[pa.RecordBatch], _T], messages: pa.RecordBatch
) -> Iterator[tuple[pa.RecordBatch, _T | Exception]]:
    """Yield `messages` in parts, in order, each with what `work` makes of it: as one part if nothing fails.

    A message that makes `work` fail is a part by itself, with the exception. Raises what `work` raises even without any
    message, and what is no message's fault.
    """
    try:
        made = work(messages)
    except LogtwinError:
        raise
    except NOT_THE_RECORDS:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is found whose it is
        work(messages.slice(0, 0))
        yield from _apart(work, messages, error)
    else:
        yield messages, made


def _apart(
    work: Callable[[pa.RecordBatch], _T], messages: pa.RecordBatch, error: Exception
) -> Iterator[tuple[pa.RecordBatch, _T | Exception]]:
    half = messages.num_rows // 2
    if not half:
        yield messages, error
        return
    yield from in_sound_parts(work, messages.slice(0, half))
    yield from in_sound_parts(work, messages.slice(half))


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {error!s:.{_SHOWN}}"
