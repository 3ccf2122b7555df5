"""What a result is written as, and where: standard output, or a file that is there whole or not at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from rich.pager import SystemPager

from sources.errors import ConfigurationError

Format = Literal["table", "csv", "json", "parquet"]


@contextmanager
def destination(output: Path | None) -> Iterator[BinaryIO]:
    """The file `output`, which is replaced at the end; standard output for None.

    Who reads standard output may stop reading, as ``head`` does: that ends the block, and is no error.
    Raises ConfigurationError where the file cannot be written.
    """
    if output is None:
        with _until_closed():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    try:
        with replacing(output) as sink:
            yield sink
    except ConnectionError:
        raise  # of Spark's sockets
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}", found=error.strerror, hint="See --output.") from error


@contextmanager
def paged(height: int) -> Iterator[BinaryIO]:
    """What comes is shown once all of it is there: by the user's pager, if it has more lines than `height`."""
    sink = io.BytesIO()
    try:
        yield sink
    finally:
        text = sink.getvalue().decode()
        if text.count("\n") < height:
            sys.stdout.write(text)
        else:
            SystemPager().show(text)


@contextmanager
def _until_closed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # what is still buffered would be complained about when the process ends
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def replacing(output: Path) -> Iterator[BinaryIO]:
    """A file that replaces `output` when the block ends without an error. Raises OSError."""
    if output.exists() and not output.is_file():  # a pipe or a device: there is nothing to replace
        with output.open("wb") as sink:
            yield sink
        return
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with part.open("wb") as sink:
            yield sink
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
