"""Versions of tables on S3, each written only where there is none: S3's own condition, ``If-None-Match: *``.

Kernel's store for S3 looks whether a version is there and then writes it; of two drivers the second overwrites the
first, and both are told of a success. So Kernel is given a committer of ours. It makes the bytes of the version, as
ever; what is done with them is here. One request puts a version, and what the store says of it is:

====================================  ==================================================================================
it is stored                          the commit is there
412, the condition does not hold      a version is there. It is ours where it is the very bytes, among them our
                                      transaction's id: an answer was lost, and S3A asked again. Else it is a conflict,
                                      as Kernel knows it
anything else, after all attempts     the version is looked at in the same way; where there is none the storage has
                                      failed. The request may still arrive: then the position finds it (`positions.py`)
the version cannot be looked at       the storage has failed: whose it is nobody knows, and again the position finds out
====================================  ==================================================================================

What cannot be written whole is not written: a stream that has failed is given up, never closed, which would put what it
has taken so far. Large versions are uploads in parts, whose end has the condition.

A store that does not know the condition would overwrite without a word. So each is tried before the first commit of a
process: the same object, put twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from sinks.delta.java_names import java_names
from sinks.storage.errors import java_causes, passes, told
from sinks.storage.place import Place, open_folder, placed
from sinks.storage.settings import S3, storage
from sources.errors import ConfigurationError, LogtwinError

_CONDITION: Final = "fs.option.create.conditional.overwrite"
_WITHOUT_LOOKS: Final = "fs.s3a.create.performance"
_REFUSED: Final = "Status Code: 412"
_UNDECIDED: Final = "Status Code: 409"
"""If several ask at the same moment, S3 may refuse one before another has succeeded: nothing is decided yet."""
_PUTS: Final = 5


def conditional_committer(context: SparkContext, path: str) -> ConditionalCommitter | None:
    """The committer of a table at `path`; None if Kernel's own is as safe, or there is a `single_writer`."""
    place = placed(path)
    if place.scheme not in S3 or storage().single_writer:
        return None
    return ConditionalCommitter(context, place)


class ConditionalCommitter:
    """A `Committer` for Kernel, which calls it by py4j, in the thread that has called `commit`. Driver only."""

    class Java:
        implements: ClassVar = ["io.delta.kernel.commit.Committer"]

    def __init__(self, context: SparkContext, table: Place) -> None:
        gateway: Any = context._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        gateway.callback_server_parameters.propagate_java_exceptions = True  # else Kernel would see py4j's own instead
        self._context = context
        self._table = table
        names = java_names(context)
        self._kernel, self._java, self._path = names.io.delta.kernel, names.java, names.org.apache.hadoop.fs.Path

    def check_store(self) -> None:
        """Check once a process that the store keeps to the condition.

        Raises ConfigurationError where it does not, Py4JJavaError where it cannot be tried.
        """
        store = storage().url, self._table.authority
        if store in _checked:
            return
        is_honoured, said = self._is_honoured()
        if not is_honoured:
            raise ConfigurationError(
                f"the store of {self._table} writes over what is there when told not to: two jobs would lose commits",
                expected="S3's conditional writes (If-None-Match), as Amazon's, MinIO, Ceph and R2 have them",
                found=said,
                hint="Use such a store, or set single_writer = true in [storage] and see to it that one process at a "
                "time writes: a job, or a verb that changes tables.",
            )
        _checked.add(store)

    def commit(self, engine: Any, rows: Any, metadata: Any) -> Any:
        """Called by Kernel. Raises Java's CommitFailedException."""
        path = str(metadata.getPublishedDeltaFilePath())
        version = self._bytes(engine, rows)
        try:
            self._put(path, version)
        except _IsThere:
            raise self._conflict(path) from None
        except _Unknown as unknown:
            raise self._failed(path, self._java.io.IOException(str(unknown))) from None
        except Py4JJavaError as error:
            raise self._failed(path, error.java_exception) from None
        status = self._kernel.utils.FileStatus.of(path, len(version), time.time_ns() // 1_000_000)
        return self._kernel.commit.CommitResponse(
            self._kernel.internal.files.ParsedPublishedDeltaData.forFileStatus(status)
        )

    def _create(self, path: str, content: bytes, *, if_absent: bool = True) -> None:
        """Put the version by one request, and S3A's further attempts. Raises Py4JJavaError."""
        target = self._path(path)
        builder = target.getFileSystem(self._context._jsc.hadoopConfiguration()).createFile(target)
        if if_absent:
            builder = builder.must(_CONDITION, True)
        stream = builder.opt(_WITHOUT_LOOKS, True).build()
        try:
            stream.write(content)
        except BaseException:
            stream.abort()
            raise
        stream.close()

    def _is_honoured(self) -> tuple[bool, str]:
        """Put one object twice, and return the answer. Raises Py4JJavaError if the store takes no object at all."""
        path = f"{self._table}/_logtwin_tries_conditional_writes_{uuid.uuid4()}"  # VACUUM leaves such names alone
        try:
            for content in (b"1", b"2"):
                self._decided(partial(self._create, path, content))
        except Py4JJavaError as error:
            if _says(error, _REFUSED):
                return True, ""  # also of the first: an answer was lost, and S3A asked again
            if passes(error):
                raise
            self._create(path, b"1", if_absent=False)  # is it the condition, or would any write fail?
            return False, str(error.java_exception.toString())
        else:
            return False, "the second of two such writes was taken"
        finally:
            filesystem, inside = open_folder(path)
            with suppress(OSError, pa.ArrowException):
                filesystem.delete_file(inside)

    def _bytes(self, engine: Any, rows: Any) -> bytes:
        """The file of a version as Kernel makes it, by way of a local one: py4j would take a call for each action."""
        with TemporaryDirectory(prefix="version-", dir=self._context._temp_dir) as folder:
            staged = Path(folder, "version.json")
            engine.getJsonHandler().writeJsonFileAtomically(f"file:{staged}", rows, True)
            return staged.read_bytes()

    def _put(self, path: str, version: bytes) -> None:
        """Raises _IsThere, _Unknown, or Py4JJavaError where the storage has failed and the version is not there."""
        try:
            self._decided(partial(self._create, path, version))
        except Py4JJavaError as error:
            found = _bytes_at(path)
            if found is None:
                raise
            if found != version:
                raise _IsThere from error
            # it had come through before

    def _decided(self, create: Callable[[], None]) -> None:
        """Ask again while S3 says that nothing is decided yet. Raises Py4JJavaError."""
        undecided = retry_if_exception(lambda error: isinstance(error, Py4JJavaError) and _says(error, _UNDECIDED))
        wait = wait_random_exponential(multiplier=0.05, max=1.0)
        Retrying(stop=stop_after_attempt(_PUTS), wait=wait, retry=undecided, reraise=True)(create)

    def _conflict(self, path: str) -> Py4JJavaError:
        """Make the error that Kernel resolves."""
        cause = self._java.nio.file.FileAlreadyExistsException(path)
        return _thrown(self._kernel.commit.CommitFailedException(True, True, f"{path} is there", cause))

    def _failed(self, path: str, cause: Any) -> Py4JJavaError:
        """Make the error that ends this commit for good."""
        return _thrown(self._kernel.commit.CommitFailedException(False, False, f"{path} cannot be written", cause))


class _IsThere(Exception):
    """Another writer's version is there."""


class _Unknown(Exception):
    """The version could not be written, nor looked at."""


_checked: set[tuple[str | None, str]] = set()
"""Endpoints and buckets that have shown it in this process."""


def _bytes_at(path: str) -> bytes | None:
    """Read the version at `path`; None if there is none. Raises _Unknown."""
    try:
        filesystem, inside = open_folder(path)
        with filesystem.open_input_stream(inside) as stream:
            return bytes(stream.readall())
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, LogtwinError) as error:
        raise _Unknown(told(error)) from error


def _thrown(java: Any) -> Py4JJavaError:
    return Py4JJavaError(str(java.getMessage()), java)


def _says(error: Py4JJavaError, words: str) -> bool:
    return any(words in cause for cause in java_causes(error.java_exception))
