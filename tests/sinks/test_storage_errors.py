"""What of a storage's refusals may pass by itself."""

import errno
import os
import socket

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JNetworkError

from sinks.storage.errors import failed_by, passes, passes_as_told
from sources.errors import ReplicaError, StorageUnreachable


@pytest.mark.parametrize(
    "number",
    [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
     errno.ENOTCONN, errno.ESTALE, errno.EMFILE],
    ids=errno.errorcode.get,
)  # fmt: skip
def test_what_an_operating_system_may_take_back(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert passes(error)
    # as Arrow says it, as a task's traceback does, as Java does
    assert passes(OSError(f"Error writing bytes to file. Detail: [errno {number}] {os.strerror(number)}"))
    assert passes_as_told(f"Traceback (most recent call last):\n  File x\nOSError: [Errno {number}] it failed")
    assert passes_as_told(f"java.io.IOException: {os.strerror(number)}")
    assert passes_as_told(f"x.y.Outer: no\nCaused by: java.io.FileNotFoundException: /lake/a ({os.strerror(number)})")
    assert failed_by(error) is StorageUnreachable


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS, errno.ENOTDIR, errno.EEXIST])
def test_what_it_will_not(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert not passes(error)
    assert not passes_as_told(f"OSError: [Errno {number}] it failed")
    assert not passes_as_told(f"java.io.FileNotFoundException: /lake/a ({os.strerror(number)})")
    assert failed_by(error) is failed_by("what is no exception") is ReplicaError


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.ipc.StandbyException): Operation READ", True),
        ("org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): x", True),
        ("org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.security.AccessControlException): x", False),
        ("x.KernelEngineException: trying to write\njava.net.SocketTimeoutException: Read timed out", True),
        ("org.apache.hadoop.fs.s3a.AWSServiceThrottledException: getFileStatus on x: Slow Down", True),
        ("org.apache.hadoop.fs.s3a.AWSStatus500Exception: x: (Service: S3, Status Code: 503)", True),
        ("java.nio.file.AccessDeniedException: x: (Service: S3, Status Code: 403)", False),
        ("org.apache.hadoop.fs.s3a.AWSBadRequestException: x: Bad Request (Service: S3, Status Code: 400)", True),
        ("org.apache.hadoop.fs.s3a.AWSBadRequestException: x: Not so (Service: S3, Status Code: 400):Invalid", False),
        ("org.apache.hadoop.fs.s3a.AWSBadRequestException: x: (Service: S3, Status Code: 409):OperationAborted", True),
        ("org.apache.hadoop.fs.s3a.AWSServiceIOException: x: (Service: S3, Status Code: 501)", False),
        ("org.apache.http.NoHttpResponseException: The target server failed to respond", True),
        # what will not pass decides
        ("java.net.ConnectException: x\nCaused by: org.apache.hadoop.security.AccessControlException: x", False),
        ("OSError: When reading 'a' in bucket 'b': AWS Error SLOW_DOWN during GetObject operation: x", True),
        ("OSError: x: AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.", True),
        ("OSError: x: AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 28", True),
        ("OSError: x: AWS Error ACCESS_DENIED during PutObject operation: Access Denied.", False),
        ("OSError: x: AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body.", False),
        ("ArrowInvalid: Parquet magic bytes not found in footer.", False),
        ("ValueError: invalid literal for int() with base 10: '503'", False),
        ("Connection refused, says a sentence that is no exception", False),
    ],
)
def test_of_all_causes_one_that_stays_decides(told: str, expected: bool) -> None:
    assert passes_as_told(told) is expected


def test_a_jvm_that_is_gone_does_not_come_back() -> None:
    """A mount may say the same of its server, which does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = listener.getsockname()[1]
    gone = ClientServer(JavaParameters(port=nobody), PythonParameters(port=0, eager_load=False))
    with pytest.raises((ConnectionError, Py4JNetworkError)) as caught:
        gone.jvm.java.lang.System.nanoTime()
    assert not passes(caught.value)
    assert not passes(Py4JNetworkError("Error while sending or receiving: Connection reset by peer"))
