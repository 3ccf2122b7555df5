"""Check once that a place can be used, and is one place: an error is one line in seconds.

An object store is asked before a session is started: Hadoop would report the same after minutes, in a page of Java.

A path without a scheme is refused if Hadoop's default file system is not a local disk. Hadoop (Spark, Kernel) reads
``/data/lake`` on `fs.defaultFS`, Arrow and Python read it on the local disk of the host that they run on. It is not
known which one the operator meant, so the scheme has to be written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from sinks.delta.java_names import java_names
from sinks.storage.errors import passes
from sinks.storage.place import Place, placed
from sinks.storage.settings import S3, storage
from sources.errors import ConfigurationError, StorageUnreachable

_SCHEME_AND_PORT: Final = "Look at endpoint in [storage]: http:// or https://, and the port."
_WRONG: Final = {
    "ACCESS_DENIED": (
        "we may not read it",
        "Give our account the rights to list, read, write and delete below this path; without keys requests are "
        "anonymous.",
    ),
    "INVALID_ACCESS_KEY_ID": (
        "it does not know our access key",
        "Look at access_key in [storage], or AWS_ACCESS_KEY_ID.",
    ),
    "SIGNATURE_DOES_NOT_MATCH": ("our secret key is not the right one", "Look at secret_key in [storage]."),
    "ExpiredToken": ("our keys have expired", "Renew them where [storage] or AWS's own chain finds them."),
    "InvalidToken": (
        "our session token is not one of its own",
        "Look at session_token in [storage], or AWS_SESSION_TOKEN.",
    ),
    "PermanentRedirect": ("the bucket is elsewhere", "Look at region and endpoint in [storage]."),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "Look at region in [storage]."),
    "curlCode: 6,": ("its host name has no address", "Look at endpoint in [storage]."),
    "curlCode: 7,": ("nobody answers at its endpoint", "Look at endpoint in [storage]; the store may also be down."),
    "curlCode: 35,": ("its endpoint does not speak TLS", _SCHEME_AND_PORT),
    "curlCode: 1,": ("its endpoint does not speak HTTP", _SCHEME_AND_PORT),
    "curlCode: 28,": (
        "its endpoint does not answer in time",
        "Look at endpoint in [storage]; the store may also be down.",
    ),
    "curlCode: 52,": ("its endpoint closes the connection", _SCHEME_AND_PORT),
    "curlCode: 56,": ("its endpoint closes the connection", _SCHEME_AND_PORT),
    "SLOW_DOWN": ("it is asked for too much", "Try again later."),
    "INTERNAL_FAILURE": ("it is not well", "Try again later; what it says stands here."),
    "SERVICE_UNAVAILABLE": ("it is not well", "Try again later; what it says stands here."),
    "curlCode: 60,": (
        "the certificate of its endpoint is not to be trusted",
        "Have its authority trusted by the system.",
    ),
}
"""Words of AWS's client in Arrow's errors -> what they mean, and what to do."""
_NO_TLS: Final = ("curlCode: 35,", "curlCode: 60,")
_SAYS: Final = re.compile(r"AWS Error .*?(?= \(Request ID: |$)", re.DOTALL)


_ROOM_BYTES: Final = 256_000
"""Less than this does not do for a start: it commits to the log table and may have to make others."""


def check_storage(place: Place) -> None:
    """Raises ConfigurationError if the store of `place` cannot be used, StorageUnreachable if that may pass."""
    if place.scheme not in S3:
        return
    filesystem, folder = place.open()
    try:
        found = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        is_there = bool(found) or filesystem.get_file_info(place.authority).type != pafs.FileType.NotFound
    except (OSError, pa.ArrowException) as error:
        raise _refused(place, error) from error
    if not is_there:
        raise ConfigurationError(
            f"there is no bucket {place.authority}",
            expected=f"the bucket of {place}",
            found=f"none at {storage().url or 'Amazon S3'}",
            hint="Create it, or look at warehouse, and at endpoint in [storage].",
        )


def check_writable(place: Place, *, makes_room: bool = False) -> None:
    """Write a file in a local `place`, or where its folder would be made, which goes again. A store is not looked at.

    Whoever `makes_room` needs none.

    Raises ConfigurationError if it cannot be made or may not be written, StorageUnreachable if that may pass: no room.
    """
    folder = place.local
    if folder is None:
        return
    try:
        there = next(one for one in (folder, *folder.parents) if one.exists())
        with TemporaryFile(dir=there) as probe:
            probe.write(bytes(0 if makes_room else _ROOM_BYTES))
    except OSError as error:
        may_pass = passes(error)
        raise (StorageUnreachable if may_pass else ConfigurationError)(
            f"{folder} cannot be written",
            expected=f"a folder of ours on a disk with at least {_ROOM_BYTES // 1000} kB of room",
            found=error.strerror,
            hint="Make room, or have logtwin maintain make some, and start it again; a job that runs waits for it."
            if may_pass
            else "Look at warehouse: its path, whose it is, and how its disk is mounted.",
        ) from error


def _refused(place: Place, error: Exception) -> ConfigurationError | StorageUnreachable:
    said = _SAYS.search(str(error))
    unknown = ("it refuses to answer", "Look at [storage].")
    what, hint = next((told for words, told in _WRONG.items() if words in str(error)), unknown)
    may_pass = passes(error) and not any(words in str(error) for words in _NO_TLS)
    return (StorageUnreachable if may_pass else ConfigurationError)(
        f"the storage of {place} cannot be used: {what}",
        expected=f"an answer of S3 at {storage().url or 'Amazon S3'}",
        found=error if said is None else said.group(),
        hint=hint,
    )


_KEY: Final = "fs.defaultFS"


def check_one_place(spark: SparkSession, given: str) -> None:
    """Raises ConfigurationError unless `given`, a folder of tables or checkpoints, is one folder in this session."""
    place = placed(given)
    if place.scheme is not None:
        return
    default = java_names(spark).org.apache.hadoop.fs.FileSystem.getDefaultUri(spark._jsc.hadoopConfiguration())
    _check(given, place, str(default.toString()))


def check_one_place_alone(given: str, properties: Mapping[str, str]) -> None:
    """Like `check_one_place`, without a JVM: by Spark's `properties`, or ``core-site.xml`` in ``HADOOP_CONF_DIR``."""
    place = placed(given)
    if place.scheme is None:
        _check(given, place, properties.get(f"spark.hadoop.{_KEY}") or _in_core_site() or "file:///")


def _in_core_site() -> str | None:
    """The default file system in Hadoop's configuration files; None if they do not say."""
    file = Path(os.environ.get("HADOOP_CONF_DIR", "/nowhere"), "core-site.xml")
    try:
        said = ElementTree.parse(file).getroot()  # noqa: S314 - the operator's own
    except (OSError, ElementTree.ParseError):
        return None
    return next((one.findtext("value") for one in said.iter("property") if one.findtext("name") == _KEY), None)


def _check(given: str, place: Place, default: str) -> None:
    if urlsplit(default).scheme == "file":
        return
    on_default = f"{default.rstrip('/')}{place.path}"
    raise ConfigurationError(
        f"{given} is ambiguous: Hadoop's default file system (fs.defaultFS) is not a local disk",
        expected=f"a URI: {on_default} or file:{place.path}",
        found=given,
        hint="Write the one that is meant; file: is the disk of each host, so only of use where all of them share it.",
    )
