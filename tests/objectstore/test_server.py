"""The S3 server of the tests is one that can be relied on: what a table in an object store counts on, it keeps."""

from __future__ import annotations

import http.client
import importlib.util
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pyarrow.fs
import pytest

from pipeline.demo import s3_server
from pipeline.demo.s3_server import OWNER, READER, Keys, S3Server, running_server
from sources.errors import ConfigurationError
from tests.objectstore.server import PlainClient
from tests.patience import PATIENCE_S, wait_until

WRITERS = 8
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, Signature=0"}


def arrow(server: S3Server, keys: Keys = OWNER) -> pyarrow.fs.S3FileSystem:
    return pyarrow.fs.S3FileSystem(
        access_key=keys.access_key, secret_key=keys.secret_key, endpoint_override=server.address, scheme="http",
        region=server.region, retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )  # fmt: skip


def race(rounds: int, write: Callable[[int, int], int]) -> list[Counter[int]]:
    """Of each round, what `write(round, writer)` said to writers that began at once."""
    together = threading.Barrier(WRITERS)

    def run(writer: int) -> list[int]:
        said = []
        for number in range(rounds):
            together.wait(PATIENCE_S)
            said.append(write(number, writer))
        return said

    with ThreadPoolExecutor(WRITERS) as threads:
        return [Counter(said) for said in zip(*threads.map(run, range(WRITERS)), strict=True)]


@pytest.mark.parametrize(("size", "rounds"), [(100, 30), (2_000_000, 5)])
def test_of_writers_that_put_a_new_key_at_once_one_is_the_first(s3: S3Server, size: int, rounds: int) -> None:
    client = PlainClient.of(s3)
    said = race(rounds, lambda number, writer: client.put_if_absent(f"log/{number}", bytes([writer]) * size))
    assert said == [Counter({200: 1, 412: WRITERS - 1})] * rounds


def test_of_uploads_that_are_completed_at_once_one_is_the_first(s3: S3Server) -> None:
    client = PlainClient.of(s3)

    def write(number: int, _: int) -> int:
        upload = client("POST", f"big/{number}?uploads").body.split(b"<UploadId>")[1].split(b"<")[0].decode()
        tag = client("PUT", f"big/{number}?partNumber=1&uploadId={upload}", b"x" * 1000).headers["etag"]
        part = f"<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>"
        body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
        return client("POST", f"big/{number}?uploadId={upload}", body, {"If-None-Match": "*"}).status

    assert race(20, write) == [Counter({200: 1, 412: WRITERS - 1})] * 20


def test_a_connection_is_kept_whatever_is_answered(s3: S3Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", s3.port, timeout=PATIENCE_S)
    connection.connect()
    kept = connection.sock
    asked = [("PUT", "a", b"x", 200), ("GET", "a", b"", 200), ("HEAD", "a", b"", 200), ("GET", "none", b"", 404),
             ("HEAD", "none", b"", 404), ("PUT", "a", b"y" * 100_000, 412), ("DELETE", "a", b"", 204)]  # fmt: skip
    for method, key, body, status in asked:
        condition = {"If-None-Match": "*"} if status == 412 else {}
        connection.request(method, f"/{s3.bucket}/{key}", body, SIGNED | condition)
        reply = connection.getresponse()
        reply.read()
        assert (method, key, reply.status) == (method, key, status)
        assert connection.sock is kept
    connection.close()


def test_a_body_in_chunks(s3: S3Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", s3.port, timeout=PATIENCE_S)
    for _ in range(2):
        connection.request("PUT", f"/{s3.bucket}/a", iter([b"x" * 70_000, b"y"]), SIGNED, encode_chunked=True)
        assert connection.getresponse().read() == b""
    assert PlainClient.of(s3)("GET", "a").body == b"x" * 70_000 + b"y"
    connection.close()


@pytest.mark.nightly
def test_it_lets_go_of_bodies(s3_process: S3Server, s3: S3Server) -> None:
    client, process = PlainClient.of(s3), psutil.Process(s3_process.pid)
    body = b"x" * 8_000_000
    client("PUT", "first", body)
    before = process.memory_info().rss
    for number in range(30):
        client("PUT", f"large/{number}", body)
    assert process.memory_info().rss < before + 120_000_000
    for number in range(30):
        client("DELETE", f"large/{number}")


def test_the_owner_may_write_and_a_reader_read(s3_guarded: S3Server) -> None:
    with arrow(s3_guarded).open_output_stream("guarded/a") as out:
        out.write(b"x")
    with arrow(s3_guarded, READER).open_input_file("guarded/a") as file:
        assert file.read() == b"x"
    with pytest.raises(OSError, match=r"ACCESS_DENIED|AccessDenied"), \
         arrow(s3_guarded, READER).open_output_stream("guarded/b") as out:  # fmt: skip
        out.write(b"x")


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        (Keys("AKIALOGTWINUNKNOWN00", "x"), "INVALID_ACCESS_KEY_ID"),
        (Keys(OWNER.access_key, "wrong"), "SIGNATURE_DOES_NOT_MATCH"),
    ],
)
def test_others_are_refused(s3_guarded: S3Server, keys: Keys, word: str) -> None:
    with pytest.raises(OSError, match=word), arrow(s3_guarded, keys).open_output_stream("guarded/b") as out:
        out.write(b"x")


def test_it_ends_with_who_started_it() -> None:
    code = "import sys\nfrom pipeline.demo.s3_server import running_server\n"
    code += "with running_server() as server:\n    print(server.pid, flush=True)\n    sys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert psutil.pid_exists(pid)
        starter.kill()
        starter.wait(PATIENCE_S)
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its end")


def test_without_moto_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'moto\[server\]"), running_server():
        pass
    with pytest.raises(SystemExit) as ended:
        s3_server.main([])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
