"""Decide which storage errors may pass by themselves: one rule for errors of Java, Arrow and Python.

Spark passes only text between its processes, so text is judged: a Java stack trace with its causes, the end of a Python
traceback, or the message of one exception. A line ``some.Exception: what it says`` is a cause. If any cause will not
pass, the error does not: a name node that refuses a user goes on refusing, however often the network was slow.

These may pass: time-outs, broken and refused connections, names that cannot be resolved at the moment; 5xx and
throttling; a name node that is standby or in safe mode; and these errors of the operating system (`_PASSING_ERRNOS`):

* a full disk and an exhausted quota: nothing is committed, so waiting loses nothing, the error is reported, and after
  room is made nothing has to be restarted;
* an I/O error, because network and FUSE mounts raise it for a moment; a broken disk goes on raising it.

Expired keys may pass, too: they are renewed from outside, sometimes a moment late. The answer to a HEAD has no body, so
a plain 400 may mean expired keys, and may pass.

These do not pass: no permission, no credentials, an operation that a store does not support (501), a read-only disk, a
missing file, bytes that are not Parquet.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from sources.errors import NO_ROOM, ReplicaError, StorageUnreachable

_PASSING_ERRNOS: Final = frozenset(
    (
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.EIO,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENOLINK,
        errno.ENOTCONN,  # a FUSE mount whose process is away
        errno.EPIPE,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        *NO_ROOM,
    )
)
_ERRNO: Final = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)
# Java reports them in the words of the C library, in parentheses behind a file's name or alone
_WORDS: Final = re.compile("|".join(re.escape(os.strerror(number)) for number in sorted(_PASSING_ERRNOS)))
_STORE_SAYS: Final = re.compile(
    r"Expired_?Token|SLOW_?DOWN|Slow Down|THROTTL|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT"
    r"|(?:Bad Request|null) \(Service: S3, Status Code: 400"
    r"|HTTP status 400\) during Head\w+ operation: No response body"
    r"|NETWORK_CONNECTION|ConditionalRequestConflict|OperationAborted"
    r"|\b(?:HTTP (?:response code|status)|Status Code|status code)[: =]*(?:429|5(?!01)\d\d)\b"
    r"|\b503 Service Unavailable\b",
    re.IGNORECASE,
)

_PASSING: Final = frozenset(
    (
        # of the JDK, and of Hadoop for connections
        "SocketTimeoutException",
        "ConnectException",
        "ConnectTimeoutException",
        "SocketException",
        "NoRouteToHostException",
        "UnknownHostException",
        "InterruptedIOException",
        "HttpTimeoutException",
        # HDFS
        "StandbyException",
        "ObserverRetryOnActiveException",
        "RetriableException",
        "SafeModeException",
        "RetryStartFileException",
        "DSQuotaExceededException",
        "NSQuotaExceededException",
        # S3A
        "AWSServiceThrottledException",
        "AWSStatus500Exception",
        "AWSApiCallTimeoutException",
        "HttpChannelEOFException",
        "NoHttpResponseException",
        "ConnectionClosedException",
        # Python
        "TimeoutError",
        "ConnectionError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "ConnectionAbortedError",
        "BrokenPipeError",
        "InterruptedError",
        "BlockingIOError",
    )
)
_STAYING: Final = frozenset(
    (
        "AccessControlException",
        "AccessDeniedException",
        "AWSBadRequestException",
        "AuthorizationException",
        "CredentialInitializationException",
        "NoAuthWithAWSException",
        "NoAwsCredentialsException",
        "SaslException",
        "UnknownStoreException",
        "FileNotFoundException",
        "NoSuchFileException",
        "FileAlreadyExistsException",
        "PermissionError",
        "FileNotFoundError",
        "NotADirectoryError",
        "ArrowInvalid",
    )
)
# A line that names an exception: "Caused by: java.net.ConnectException: …", "OSError: [Errno 28] …"
_CAUSE: Final = re.compile(
    r"^(?:.*?Caused by: |: )?(?P<kind>(?:[\w$]+\.)*[A-Z][\w$]*(?:Exception|Error))\b(?:: (?P<says>.*))?$"
)
# HDFS's errors come wrapped: "RemoteException(org.apache.hadoop.ipc.StandbyException): Operation category WRITE …"
_REMOTE: Final = re.compile(r"RemoteException\((?P<kind>[\w.$]+)\): ?(?P<says>.*)")


def passes(error: Exception) -> bool:
    """Whether an operation that a storage refused with `error` may succeed later, without anybody's help."""
    if isinstance(error, Py4JNetworkError) or (isinstance(error, ConnectionError) and _is_of_py4j(error)):
        return False  # the JVM of this process is gone
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _PASSING_ERRNOS
    return passes_as_told(told(error))


def is_no_room(error: Exception) -> bool:
    """Whether `error` says that a disk or a quota is full: what deletes files may go on, and helps."""
    return any(os.strerror(number) in str(error) for number in NO_ROOM)


def _is_of_py4j(error: ConnectionError) -> bool:
    """Whether the connection to the JVM has failed, and not that of a mount to its server."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").partition(".")[0] == "py4j" for frame in frames)


def passes_as_told(text: str) -> bool:
    """Like `passes`, for an error that is known only by its text: a stack trace, or an exception's type and message."""
    found = [_verdict(kind, says) for kind, says in _causes(text)]
    return True in found and False not in found


def reason(error: Exception) -> str:
    """The line in `told(error)` with the cause that may pass; the first line if there is none."""
    lines = told(error).splitlines()
    return next((line for line in lines if passes_as_told(line)), lines[0]).strip()


def told(error: Exception) -> str:
    """The text of `error` and its causes, a line each: type and message."""
    if isinstance(error, Py4JJavaError):
        return "\n".join(java_causes(error.java_exception))
    lines = [f"{type(error).__name__}: {error}"]
    cause = getattr(error, "_cause", None)  # PySpark's own chain: a query's exception has no text of what it wraps
    while cause is not None:
        lines.append(str(cause))
        cause = getattr(cause, "_cause", None)
    return "\n".join(lines)


def failed_by(found: object) -> type[ReplicaError]:
    """The error type for `found`: StorageUnreachable for an exception that may pass, otherwise ReplicaError."""
    return StorageUnreachable if isinstance(found, Exception) and passes(found) else ReplicaError


@contextmanager
def reported_as(problem: str, **facts: Any) -> Iterator[None]:
    """Turn what reading or writing files raises inside into an error of `failed_by` with these `facts`."""
    try:
        yield
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise failed_by(error)(problem, found=error, **facts) from error


def _causes(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _REMOTE.search(line) or _CAUSE.match(line)
        if found is not None:
            yield found["kind"].rpartition(".")[2], found["says"] or ""


def _verdict(kind: str, says: str) -> bool | None:
    """Whether one cause may pass; None if it only wraps another, or says nothing of the storage."""
    number = _ERRNO.search(says)
    if number is not None:
        return int(number[1]) in _PASSING_ERRNOS
    # The message counts before the type: Java raises FileNotFoundException also for a file on a full disk
    if _WORDS.search(says) or _STORE_SAYS.search(says) or kind in _PASSING:
        return True
    return False if kind in _STAYING else None


def java_causes(java: Any) -> Iterator[str]:
    """A Java exception and its causes, a line each."""
    while java is not None:
        yield str(java.toString())
        java = java.getCause()
