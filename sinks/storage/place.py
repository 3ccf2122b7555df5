"""Places of tables: the text in the configuration, and the file system behind it.

Hadoop (in Spark and Delta Kernel), Arrow, and, on a local disk, Python read the same text. They have to find the same
folder, so the text is read as Hadoop's `Path(String)` does, and no other rule applies:

====================================  =================================================================================
text                                  folder
====================================  =================================================================================
``lake``, ``/data/lake``              of a local disk; a relative one from where logtwin was started. If Hadoop's
                                      default is another file system, it is refused (`check.py`)
``file:/x``, ``file:///x``            the same, whatever Hadoop's default file system is
``file://localhost/x``                the same; Hadoop itself would refuse the host name
``hdfs:/x``, ``hdfs:///x``            of the default name node, ``fs.defaultFS``; so for viewfs
``hdfs://host:port/x``, ``s3a://b/x``  of that authority; Arrow's name of s3a is s3
====================================  =================================================================================

Nothing in it is percent-encoded: ``%20``, ``#``, ``?`` and blanks are characters of a name, as for Hadoop. Arrow takes
only URIs, and decodes them, so it is given an encoded one.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs

from sinks.storage.errors import passes
from sinks.storage.settings import AZURE, GOOGLE, S3, storage
from sources.errors import ConfigurationError, LogtwinError, StorageUnreachable

_KEY_IN_A_NAME: Final = re.compile(r"[?&](?:access_key|secret_key|session_token|sig)=", re.IGNORECASE)
"""Keys as Arrow and Azure take them. For Hadoop these are characters of a folder's name, which everybody would see."""
_LOCAL_HOSTS: Final = ("", "localhost")
_OF_THE_DEFAULT: Final = ("hdfs", "viewfs")
_ARROW_NAMES: Final = {
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""Arrow's names of the schemes that both Hadoop and Arrow can open."""
UNDERSTOOD: Final = f"a path, or a URI of {', '.join(['file', *_ARROW_NAMES])}"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder. `path` has nothing encoded in it, and is absolute if `scheme` is None (a plain path) or ``file``."""

    scheme: str | None
    authority: str
    path: str

    def __str__(self) -> str:
        """The text for Hadoop, Spark and Kernel."""
        if self.local is not None:
            return f"{'' if self.scheme is None else 'file:'}{self.path}"
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def local(self) -> Path | None:
        """The folder on a local disk; None if it is on another file system."""
        return Path(self.path) if self.scheme in (None, "file") else None

    @property
    def arrow_uri(self) -> str:
        """The URI for Arrow, if the folder is not on a local disk."""
        return f"{_ARROW_NAMES[self.scheme or '']}://{self.authority}{quote(self.path)}"

    def open(self) -> tuple[pafs.FileSystem, str]:
        """Arrow's file system, and the folder in it.

        Raises ConfigurationError if it cannot be opened here, StorageUnreachable if that may pass.
        """
        if self.local is not None:
            return pafs.LocalFileSystem(), self.path
        try:
            if self.scheme in _OF_THE_DEFAULT and not self.authority:
                return pafs.HadoopFileSystem("default"), self.path
            if self.scheme in (*S3, *AZURE):
                filesystem, bucket = storage().open(self.scheme, self.authority)
                return filesystem, f"{bucket}{self.path}"
            filesystem, inner = pafs.FileSystem.from_uri(self.arrow_uri)
        except (OSError, pa.ArrowException) as error:
            raise self._unopened(error) from error
        return filesystem, inner

    def _unopened(self, error: Exception) -> LogtwinError:
        kind = StorageUnreachable if passes(error) else ConfigurationError
        return kind(
            f"the storage of {self} cannot be opened",
            expected="a file system that Arrow can open in the driver and wherever tasks run",
            found=error,
            hint="Look at warehouse, and at endpoint and region in [storage]."
            if self.scheme in S3
            else "Arrow brings S3, Azure and GCS; for HDFS it needs Hadoop's libhdfs, JAVA_HOME and the CLASSPATH.",
        )


LOCAL: Final = Place(None, "", "/")
"""The local disk."""


SPARE_BYTES: Final = 16_384
"""The bytes by which a small file may grow on a full disk: for the errors that this brings."""


def placed(given: str, key: str = "a path") -> Place:
    """The place that `given`, a path or a URI, means.

    Raises ConfigurationError, naming its `key`, for text that Hadoop and Arrow do not both understand, and for text
    with credentials in it, without repeating it.
    """
    head, colon, rest = given.partition(":")
    if not colon or "/" in head:
        return Place(None, "", str(Path(given).absolute()))
    scheme = head.lower()
    authority, path = _parts(rest)
    if _has_credentials(scheme, authority, path):
        raise ConfigurationError(
            f"{key} has credentials in it",
            expected="a place alone, as s3://bucket/folder",
            hint="Name them in [storage], by env:NAME or file:PATH. They are exposed now: replace them.",
        )
    if scheme == "file" and authority in _LOCAL_HOSTS and path.startswith("/"):
        return Place("file", "", path.rstrip("/") or "/")
    if scheme not in _ARROW_NAMES or not (authority or (scheme in _OF_THE_DEFAULT and path)):
        raise ConfigurationError(
            f"{key} is not a place that tables can be in",
            expected=UNDERSTOOD,
            found=given,
            hint="A path with a colon begins with / or ./; what Hadoop calls s3n is s3a today.",
        )
    return Place(scheme, authority, path.rstrip("/"))


def _has_credentials(scheme: str, authority: str, path: str) -> bool:
    """Whether there are credentials in a place.

    A bucket has neither @ nor : in its name; other authorities may name a user, but have no password. AWS's secrets may
    have slashes, and then the rest of a secret looks like the path.
    """
    user, _, _ = authority.rpartition("@")
    is_bucket = scheme in (*S3, *GOOGLE, "s3n")
    signs = authority if is_bucket else user
    return ":" in signs or (is_bucket and "@" in authority) or _KEY_IN_A_NAME.search(path) is not None


def _parts(rest: str) -> tuple[str, str]:
    """The authority and the path in `rest`, which follows the scheme's colon."""
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path


def open_folder(path: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a folder's path or URI, and the path within it. Raises as `placed` and `Place.open` do."""
    return placed(path).open()


class SmallFile:
    """The file at `path`, a local path or a URI. Every method raises OSError if its place cannot be reached."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def names_in(cls, folder: str) -> list[str]:
        """The names of the files in `folder`, without hidden ones; none if there is no such folder."""
        filesystem, inside, _ = cls(folder)._open()
        listed = filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True))
        return [one.base_name for one in listed if one.is_file and not one.base_name.startswith(".")]

    def read(self) -> bytes | None:
        """The content; None if there is no file."""
        filesystem, path, _ = self._open()
        try:
            with filesystem.open_input_stream(path) as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *, spare_bytes: int = 0) -> None:
        """Replace the content atomically: readers see the old content or the new, also after a kill.

        With `spare_bytes` a local file has as many blanks behind it: on a full disk its next content, up to that much
        longer, is written over it. A reader at that very moment may see half of it.
        """
        filesystem, path, local = self._open()
        if local is None:
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)
            return
        local.parent.mkdir(parents=True, exist_ok=True)
        new = local.with_name(f".{local.name}.{uuid.uuid4().hex}")
        try:
            new.write_bytes(content + b" " * spare_bytes)
            new.replace(local)
        except OSError:
            new.unlink(missing_ok=True)
            if not spare_bytes or not local.exists() or len(content) > local.stat().st_size:
                raise
            with local.open("r+b") as old:
                old.write(content.ljust(local.stat().st_size))

    def remove(self) -> None:
        filesystem, path, _ = self._open()
        with suppress(FileNotFoundError):
            filesystem.delete_file(path)

    def _open(self) -> tuple[pafs.FileSystem, str, Path | None]:
        try:
            place = placed(self._path)
            return *place.open(), place.local
        except LogtwinError as error:
            raise OSError(str(error)) from error
