"""Which refusals of a storage may pass by themselves: one answer for Java's errors, Arrow's and Python's.

Spark hands only text across its processes, so text is what is judged: a Java stack trace with its causes, the end of a
Python traceback, or one exception's own words. A line ``some.Exception: what it says`` is a cause. Of all causes one
that will not pass decides: a name node that refuses a user stays as it is, however often the network was slow.

What passes: time-outs, broken and refused connections, names that are not resolved just now; 5xx and throttling; a name
node that is standby or in safe mode. And of the operating system's words (`_PASSING_ERRNOS`) also a full disk and a
spent quota: nothing is committed, so waiting loses nothing, it is said, and who makes room need not start anything.
An I/O error, because network and FUSE mounts say it of a moment; of a disk that is broken it is said again and again.
Keys that have expired pass, too: who renews them does so from outside, now and then a moment late. A HEAD is
answered without words: of 400 alone nobody can tell whether that is meant, so it passes.
What does not: no permission, no credentials, what a store does not know how to do (501), a read-only disk, nothing
there, bytes that are no Parquet.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from sources.errors import ReplicaError, StorageUnreachable

_PASSING_ERRNOS: Final = frozenset(
    (
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EDQUOT,
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
        errno.ENOSPC,
        errno.ENOTCONN,  # a FUSE mount whose process is away
        errno.EPIPE,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    )
)
_ERRNO: Final = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)
# What Java says of them: the words of the C library, in parentheses behind a file's name or alone
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
        # the JDK's, and Hadoop's of connections
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
        "AWSRequestTimeoutException",
        "AWSServiceUnavailableException",
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
    """Whether what a storage refused with `error` may be granted later, without anybody's help."""
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return False  # the JVM of this process is gone: nobody else is spoken to over a connection of Python's here
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _PASSING_ERRNOS
    return passes_as_told(told(error))


def passes_as_told(text: str) -> bool:
    """`passes` of what is known by its text: a stack trace, or the words of one exception behind its type."""
    found = [_verdict(kind, says) for kind, says in _causes(text)]
    return True in found and False not in found


def reason(error: Exception) -> str:
    """Of all that is `told` of an error that `passes`, the words of the cause that does."""
    lines = told(error).splitlines()
    return next((line for line in lines if passes_as_told(line)), lines[0]).strip()


def told(error: Exception) -> str:
    """`error` and its causes, a line each: its type and what it says."""
    if isinstance(error, Py4JJavaError):
        return "\n".join(java_causes(error.java_exception))
    lines = [f"{type(error).__name__}: {error}"]
    cause = getattr(error, "_cause", None)  # PySpark's own chain: what a query's exception wraps is in no text of it
    while cause is not None:
        lines.append(str(cause))
        cause = getattr(cause, "_cause", None)
    return "\n".join(lines)


def failed_by(found: object) -> type[ReplicaError]:
    """The type of error that tells of what was `found`: StorageUnreachable of a refusal that may pass."""
    return StorageUnreachable if isinstance(found, Exception) and passes(found) else ReplicaError


def _causes(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _REMOTE.search(line) or _CAUSE.match(line)
        if found is not None:
            yield found["kind"].rpartition(".")[2], found["says"] or ""


def _verdict(kind: str, says: str) -> bool | None:
    """Of one cause: whether it passes, None where it only wraps another or says nothing of the storage."""
    number = _ERRNO.search(says)
    if number is not None:
        return int(number[1]) in _PASSING_ERRNOS
    # The words first: Java's FileNotFoundException is also of a file that a full disk has no room for
    if _WORDS.search(says) or _STORE_SAYS.search(says) or kind in _PASSING:
        return True
    return False if kind in _STAYING else None


def java_causes(java: Any) -> Iterator[str]:
    """A Java exception and what it wraps, a line each."""
    while java is not None:
        yield str(java.toString())
        java = java.getCause()
