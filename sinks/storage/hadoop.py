"""Let Hadoop, in Spark and in Delta Kernel, reach an object store (`settings.py`), and remove files by it.

Spark's own properties hold none of it, because its pages and logs show them; nor do Java's, which a variable in SQL or
in Hadoop's configuration could name. Hadoop is configured in the running JVM, and passes it on to the executors. S3's
file system keeps the keys that it was made with. So renewed ones are put into it, and are used without a restart. The
JVMs of executors, which only queries need, keep the keys of their start.

No key goes through the gateway, because py4j logs its arguments at level DEBUG. The JVM reads them from a pipe.

Arrow makes three requests to S3 to remove a file: is it there, remove it, put a marker of the folder, which may be
empty now. S3 has one request for many names, which Hadoop uses.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit
from xml.sax.saxutils import escape

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sinks.delta.java_names import java_names
from sinks.storage.place import Place, placed
from sinks.storage.settings import AZURE, GOOGLE, S3, VARIABLE, Storage, storage

_S3A: Final = "org.apache.hadoop.fs.s3a"
_PROVIDERS: Final = "fs.s3a.aws.credentials.provider"
_OURS: Final = f"{_S3A}.TemporaryAWSCredentialsProvider,{_S3A}.SimpleAWSCredentialsProvider"
_AWS_CHAIN: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_CALLS: Final = 2
_TRIES_A_CALL: Final = 3
_HADOOP: Final = {"access_key": "access.key", "secret_key": "secret.key", "session_token": "session.token"}


def reach(spark: SparkSession, place: Place, buffer_folder: str) -> None:
    """Let Hadoop and tasks of this session reach the file system of `place` as `storage` says, from now on.

    Spark's own properties for it (``spark.hadoop.…``) take precedence. `buffer_folder` is for uploads of S3A.
    Raises ConfigurationError if a key cannot be read, OSError as `Storage.region_of` does.
    """
    context, chosen = spark.sparkContext, storage()
    context.environment[VARIABLE] = chosen.as_text()
    given, configuration = context.getConf(), context._jsc.hadoopConfiguration()
    for name, value in _properties(chosen, place, buffer_folder).items():
        if not given.contains(f"spark.hadoop.{name}"):
            configuration.set(name, value)
    if place.scheme in S3:  # otherwise each operation waits for 15 s, whatever is configured
        names = java_names(context)
        shortest = names.java.time.Duration.ofMillis(_once_ms(chosen))
        names.org.apache.hadoop.fs.s3a.impl.AWSClientConfig.setMinimumOperationDuration(shortest)
    told = _told(context)
    named = _keys(chosen, place, told.keys).items()
    keys = {name: key for name, key in named if not given.contains(f"spark.hadoop.{name}")}
    if keys:
        _hand_over(context, _as_resource(keys), lambda stream: _add(configuration, stream))
    is_open = told.place is not None and told.place.authority == place.authority
    told.place, told.keys = place, dict(chosen.keys())
    if is_open:
        _renew_in(context, place)


def _properties(chosen: Storage, place: Place, buffer_folder: str) -> dict[str, str]:
    """The settings by Hadoop's names, without secrets."""
    if place.scheme in S3:
        names = {f"fs.s3a.{name}": value for name, value in _s3(chosen, place.authority, buffer_folder).items()}
        return names | {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if place.scheme in AZURE:
        return {f"fs.azure.{name}": value for name, value in _azure(chosen).items()}
    return {"fs.gs.auth.type": "APPLICATION_DEFAULT"} if place.scheme in GOOGLE else {}


def _keys(chosen: Storage, place: Place, before: Mapping[str, str]) -> dict[str, str]:
    """The keys by Hadoop's names. Raises ConfigurationError."""
    if place.scheme in S3:
        return _s3_keys(chosen.keys(), before)
    if place.scheme in AZURE and chosen.account_key is not None:
        return {f"fs.azure.account.key.{place.authority.partition('@')[2]}": chosen.account_key.reveal()}
    return {}


def _s3_keys(keys: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """One that was there `before` and is gone is a space: Hadoop passes over an empty value, and S3A trims it."""
    return {f"fs.s3a.{_HADOOP[name]}": keys.get(name, " ") for name in before.keys() | keys.keys()}


def _s3(chosen: Storage, bucket: str, buffer_folder: str) -> dict[str, str]:
    url = chosen.url
    endpoint = {"endpoint": url, "connection.ssl.enabled": str(url.startswith("https:")).lower()} if url else {}
    once_ms, call_ms = _once_ms(chosen), _once_ms(chosen) * _TRIES_A_CALL
    return {
        **endpoint,
        "endpoint.region": chosen.region_of(bucket),
        "path.style.access": str(chosen.is_path_style).lower(),
        _PROVIDERS.removeprefix("fs.s3a."): _OURS if chosen.access_key else _AWS_CHAIN,
        "buffer.dir": buffer_folder,
        # No checks before a write, each of which is a request: no file is ever written in place of a folder here
        "performance.flags": "create,mkdir",
        # Hadoop's default, `analytics`, caches what it knows of an object for a day: it cannot read a checkpoint that
        # another process has rewritten. It also keeps up to 2 GB of what it has read, and waits for ten minutes.
        "input.stream.type": "classic",
        # By default Hadoop tries for minutes. Each of its tries is a call, for which AWS's client makes up to
        # `attempts.maximum` further tries.
        "attempts.maximum": str(_TRIES_A_CALL - 1),
        "retry.limit": str(_CALLS - 1),
        "retry.interval": "250ms",
        "retry.throttle.limit": str(_CALLS),
        "retry.throttle.interval": "250ms",
        "connection.establish.timeout": f"{once_ms}ms",
        "connection.acquisition.timeout": f"{once_ms}ms",
        "connection.timeout": f"{once_ms}ms",
        "connection.request.timeout": f"{call_ms}ms",
    }


def _azure(chosen: Storage) -> dict[str, str]:
    once_ms = str(_once_ms(chosen))
    return {
        **(_emulator(urlsplit(chosen.endpoint)) if chosen.endpoint else {}),
        # By default Hadoop tries for a quarter of an hour
        "io.retry.max.retries": str(_CALLS * _TRIES_A_CALL - 1),
        "io.retry.min.backoff.interval": "250",
        "io.retry.backoff.interval": "250",
        "io.retry.max.backoff.interval": once_ms,
        "static.retry.interval": "250",
        "http.connection.timeout": once_ms,
        "http.read.timeout": once_ms,
    }


def _emulator(endpoint: SplitResult) -> dict[str, str]:
    """The settings for an emulator of Azure, which has its Blob interface, but not the DFS one or its folders (HNS)."""
    is_tls = endpoint.scheme == "https"
    return {
        "abfs.endpoint": f"{endpoint.hostname}:{endpoint.port or (443 if is_tls else 80)}",
        "always.use.https": str(is_tls).lower(),
        "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB",
        # The other library, Apache's, does not start without TLS
        **({} if is_tls else {"networking.library": "JDK_HTTP_URL_CONNECTION"}),
    }


def _once_ms(chosen: Storage) -> int:
    """How long one try waits for the store, in ms."""
    return max(500, round(chosen.patience_s * 1000 / (_CALLS * _TRIES_A_CALL)))


def renew_keys(context: SparkContext) -> None:
    """Pass renewed keys to the driver's JVM. To be called before it uses S3. Raises ConfigurationError."""
    keys, told = dict(storage().keys()), _told(context)
    if told.place is not None and told.place.scheme in S3 and keys != told.keys:
        named = _s3_keys(keys, told.keys)
        configuration = context._jsc.hadoopConfiguration()
        _hand_over(context, _as_resource(named), lambda stream: _add(configuration, stream))
        _renew_in(context, told.place)
        told.keys = keys


def _renew_in(context: SparkContext, place: Place) -> None:
    """Let the file system of `place` sign with the keys in Hadoop's configuration from now on."""
    if place.scheme not in S3 or context.getConf().contains(f"spark.hadoop.{_PROVIDERS}"):
        return
    java, configuration = java_names(context), context._jsc.hadoopConfiguration()
    uri = java.java.net.URI.create(f"{place.scheme}://{place.authority}")
    opened = java.org.apache.hadoop.fs.FileSystem.get(uri, configuration)
    signing = opened.getS3AInternals().shareCredentials("renewed keys")
    # It asks the provider that it used last, and has no method to change that
    last = signing.getClass().getDeclaredField("lastProvider")
    last.setAccessible(True)
    factory = java.org.apache.hadoop.fs.s3a.auth.CredentialProviderListFactory
    last.set(signing, factory.createAWSCredentialProviderList(uri, configuration))
    signing.close()  # our share of it


@dataclass
class _Told:
    """The settings that the JVM was given last: the file system that it reaches, and S3's keys."""

    place: Place | None = None
    keys: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)  # a process has one JVM at a time
def _told(_context: SparkContext) -> _Told:
    return _Told()


def _hand_over(context: SparkContext, text: str, take: Callable[[Any], object]) -> None:
    """Let the JVM read `text` to its end, by `take`, from an InputStream."""
    pipe = Path(context._temp_dir) / f"keys-{uuid.uuid4()}"
    os.mkfifo(pipe, 0o600)
    writer = threading.Thread(target=_write, args=(pipe, text.encode()), daemon=True)
    writer.start()
    try:
        stream = java_names(context).java.io.FileInputStream(str(pipe))
        try:
            take(stream)
        finally:
            stream.close()
    finally:
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # releases the writer if nobody else has opened the pipe
        writer.join()
        pipe.unlink()


def _write(pipe: Path, text: bytes) -> None:
    with suppress(OSError), pipe.open("wb") as stream:  # a reader that fails raises its own error
        stream.write(text)


def _add(configuration: Any, stream: Any) -> None:
    configuration.addResource(stream)
    configuration.size()  # reads the resource


def _as_resource(values: Mapping[str, str]) -> str:
    """Write `values` in the format of Hadoop's configuration files."""
    properties = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in values.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>"


def remove_files(
    spark: SparkSession | None, folder: str, names: Sequence[str], *, past_what_resists: bool = False
) -> None:
    """Remove the files `names` in `folder`, in their order; missing ones are skipped.

    On S3, with a session, a request removes some hundreds, in an order that the store decides. Raises OSError if a file
    cannot be removed, and leaves those after it; with `past_what_resists` it leaves only that file, and does not raise.
    """
    place = placed(folder)
    bulk = _Bulk(spark, place) if place.scheme in S3 and spark is not None else _OneByOne(place)
    for at in range(0, len(names), bulk.at_once):
        try:
            bulk.remove(names[at : at + bulk.at_once])
        except OSError:
            if not past_what_resists:
                raise


class _OneByOne:
    at_once = 1

    def __init__(self, place: Place) -> None:
        self._filesystem, inner = place.open()
        self._folder = inner.rstrip("/")

    def remove(self, names: Sequence[str]) -> None:
        """Remove `names`. Raises OSError."""
        for name in names:
            with suppress(FileNotFoundError):  # another process has removed it
                self._filesystem.delete_file(f"{self._folder}/{name}")


class _Bulk:
    def __init__(self, spark: SparkSession, place: Place) -> None:
        """Raises OSError."""
        renew_keys(spark.sparkContext)
        self._java: Any = java_names(spark)
        self._folder = str(place)
        with _as_os_error():
            base = self._path(self._folder)
            self._removal = base.getFileSystem(spark._jsc.hadoopConfiguration()).createBulkDelete(base)
            self.at_once = int(self._removal.pageSize())

    def remove(self, names: Sequence[str]) -> None:
        """Remove `names`. Raises OSError if some are left."""
        with _as_os_error():
            left = self._removal.bulkDelete([self._path(f"{self._folder}/{name}") for name in names])
        if not left.isEmpty():
            raise OSError(f"{left.size()} files of {self._folder} cannot be removed: {left.get(0).getValue()}")

    def _path(self, text: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(text)


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise OSError(str(error.java_exception.toString())) from error
