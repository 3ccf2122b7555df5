"""The link to the S3 server: sound it changes nothing; a fault is what a client of S3 would meet, and is logged so."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import pyarrow.fs
import pytest
import urllib3

from pipeline.demo.s3_server import OWNER, READER, S3Server
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import (
    ACCESS_DENIED,
    CONFLICT,
    EXPIRED_TOKEN,
    INTERNAL_ERROR,
    NO_SUCH_BUCKET,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SLOW_DOWN,
    UNKNOWN_KEY,
    WRONG_SIGNATURE,
    Answer,
    Credentials,
    CutAfter,
    CutBefore,
    CutWithinAnswer,
    Fault,
    Held,
    Late,
    Unconditional,
    other_region,
    signed_for_another_region,
)
from tests.objectstore.s3_requests import Kind, which
from tests.objectstore.server import PlainClient
from tests.patience import PATIENCE_S, wait_until

LARGE = bytes(range(256)) * 50_000


@pytest.fixture
def s3_link(s3: S3Server) -> Iterator[FaultProxy]:
    """Of the test's own: connections are counted."""
    with FaultProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def client(s3: S3Server, s3_link: FaultProxy) -> PlainClient:
    """Asks by way of the link."""
    return PlainClient(s3_link.endpoint, s3.bucket)


@pytest.fixture
def behind(s3: S3Server) -> PlainClient:
    """Asks the server itself."""
    return PlainClient.of(s3)


def arrow(address: str, *, access_key: str = OWNER.access_key, tries: int = 1) -> pyarrow.fs.S3FileSystem:
    return pyarrow.fs.S3FileSystem(
        access_key=access_key, secret_key=OWNER.secret_key, endpoint_override=address, scheme="http",
        region="us-east-1", retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=tries),
    )  # fmt: skip


def test_without_a_fault_it_is_the_server(client: PlainClient, behind: PlainClient, s3_link: FaultProxy) -> None:
    with s3_link.counted() as seen:
        assert client("PUT", "a/b", LARGE).status == 200
        assert client("GET", "a/b").body == behind("GET", "a/b").body == LARGE
        assert client("GET", "a/b", headers={"Range": "bytes=5-9"}).body == LARGE[5:10]
        assert client("HEAD", "a/b").headers["content-length"] == str(len(LARGE))
        assert client("HEAD", "none").status == 404
        assert client("PUT", "a/b", b"x", {"If-None-Match": "*"}).status == 412
        assert b"<Key>a/b</Key>" in client("GET", "?list-type=2&prefix=a/").body
        assert client("DELETE", "a/b").status == 204
    assert seen.lines() == [
        "put a/b 200", "get a/b 200", "get a/b 206", "head a/b 200", "head none 404", "put a/b 412", "list a/ 200",
        "delete a/b 204",
    ]  # fmt: skip
    assert (seen.all[0].sent_bytes, seen.all[1].answer_bytes, seen.all[2].answer_bytes) == (len(LARGE), len(LARGE), 5)
    assert s3_link.connections == 1


def test_only_what_begins_meanwhile_is_counted(client: PlainClient, s3_link: FaultProxy) -> None:
    client("PUT", "a", b"x")
    with s3_link.counted() as outer:
        client("GET", "a")
        with s3_link.counted() as inner:
            client("HEAD", "a")
    client("GET", "a")
    assert (outer.kinds(), inner.kinds()) == ({Kind.GET: 1, Kind.HEAD: 1}, {Kind.HEAD: 1})


def test_files_of_arrow_pass_in_parts(s3: S3Server, s3_link: FaultProxy) -> None:
    files = arrow(s3_link.address)
    with s3_link.counted() as seen:
        with files.open_output_stream(f"{s3.bucket}/large") as out:
            out.write(LARGE)
        with files.open_input_file(f"{s3.bucket}/large") as file:
            assert file.read() == LARGE
    assert seen.kinds() == {Kind.INITIATE: 1, Kind.PART: 2, Kind.COMPLETE: 1, Kind.HEAD: 1, Kind.GET: 1}
    assert sum(one.sent_bytes for one in seen.of(Kind.PART)) > len(LARGE)  # checksums are in between


def test_a_signature_still_holds(s3_guarded: S3Server) -> None:
    with FaultProxy(s3_guarded.port) as proxy:
        with arrow(proxy.address).open_output_stream("guarded/a") as out:
            out.write(b"x")
        others = arrow(proxy.address, access_key=READER.access_key)
        with pytest.raises(OSError, match="SIGNATURE_DOES_NOT_MATCH"), others.open_output_stream("guarded/a") as out:
            out.write(b"x")


def test_a_client_that_waits_for_our_word_before_it_sends_a_body(s3_link: FaultProxy, behind: PlainClient) -> None:
    with socket.create_connection(("127.0.0.1", s3_link.port), PATIENCE_S) as sock, sock.makefile("rb") as answers:
        for fault in (None, SLOW_DOWN):
            if fault:
                s3_link.inject(fault)
            sock.sendall(f"PUT /{behind.bucket}/a HTTP/1.1\r\nHost: h\r\n".encode())
            sock.sendall(b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert answers.readline() == b"\r\n"
            sock.sendall(b"hello")
            status = answers.readline()
            assert (b"503" if fault else b"200") in status
            while answers.readline() != b"\r\n":
                pass
    assert behind("GET", "a").body == b"hello"


@pytest.mark.parametrize(
    "fault",
    [
        INTERNAL_ERROR, SLOW_DOWN, ACCESS_DENIED, UNKNOWN_KEY, WRONG_SIGNATURE, EXPIRED_TOKEN, NOT_IMPLEMENTED,
        CONFLICT, PRECONDITION_FAILED, NO_SUCH_BUCKET,
        other_region("eu-west-1"), signed_for_another_region("eu-west-1", "us-east-1"),
    ],
    ids=lambda fault: fault.code,
)  # fmt: skip
def test_an_answer_in_the_servers_place(
    fault: Answer, client: PlainClient, behind: PlainClient, s3_link: FaultProxy
) -> None:
    rule = s3_link.inject(fault, times=2)
    with s3_link.counted() as seen:
        reply = client("PUT", "a", LARGE)
        head = client("HEAD", "a")
        assert client("PUT", "b", b"x").status == 200  # over the same connection
    error = ElementTree.fromstring(reply.body)  # noqa: S314 - our own
    assert (reply.status, error.findtext("Code")) == (fault.status, fault.code)
    assert error.findtext("Resource") == f"/{client.bucket}/a"
    assert (head.status, head.body) == (fault.status, b"")
    assert set(fault.headers) <= set(reply.headers.items())
    assert behind("HEAD", "a").status == 404
    assert [(one.status, one.fault) for one in seen] == [(fault.status, fault), (fault.status, fault), (200, None)]
    assert (rule.met, s3_link.connections) == (2, 1)


@pytest.mark.parametrize(("fault", "is_done"), [(CutBefore(), False), (CutAfter(), True)])
def test_a_connection_that_breaks_before_or_after_the_server_has_acted(
    fault: Fault, is_done: bool, client: PlainClient, behind: PlainClient, s3_link: FaultProxy
) -> None:
    client("HEAD", "a")  # a connection that is kept
    s3_link.inject(fault, which(Kind.PUT), times=1)
    with s3_link.counted() as seen:
        with pytest.raises(urllib3.exceptions.HTTPError):
            client("PUT", "a", LARGE, {"If-None-Match": "*"})
        assert (behind("HEAD", "a").status == 200) == is_done
        assert client.put_if_absent("a", b"again") == (412 if is_done else 200)
    assert [one.status for one in seen] == [None, 412 if is_done else 200]


def test_an_answer_that_breaks_off(client: PlainClient, s3_link: FaultProxy) -> None:
    client("PUT", "a", LARGE)
    s3_link.inject(CutWithinAnswer(1000), which(Kind.GET), times=1)
    with s3_link.counted() as seen, pytest.raises(urllib3.exceptions.HTTPError):
        client("GET", "a")
    assert client("GET", "a").body == LARGE
    assert [one.status for one in seen] == [200]


def test_a_late_answer(client: PlainClient, s3_link: FaultProxy) -> None:
    s3_link.inject(Late(0.2), times=1)
    begin = time.monotonic()
    assert client("PUT", "a", b"x").status == 200
    assert time.monotonic() - begin > 0.2


def test_a_request_that_is_held_arrives_though_nobody_waits_for_it(
    client: PlainClient, behind: PlainClient, s3_link: FaultProxy
) -> None:
    s3_link.inject(Held(0.3), which(Kind.PUT), times=2)
    assert client("PUT", "a", b"x").status == 200
    with socket.create_connection(("127.0.0.1", s3_link.port)) as plain:
        signed = "Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, Signature=0"
        head = f"PUT /{client.bucket}/b HTTP/1.1\r\nHost: h\r\n{signed}\r\nContent-Length: 1\r\n\r\ny"
        plain.sendall(head.encode())
    assert behind("GET", "b").status == 404
    wait_until(lambda: behind("GET", "b").body == b"y", "the held request")


def test_a_late_answer_keeps_nobody_from_ending(s3: S3Server) -> None:
    with FaultProxy(s3.port) as proxy:
        proxy.inject(Late(600.0))
        asking = threading.Thread(target=lambda: _ignoring(lambda: PlainClient(proxy.endpoint, s3.bucket)("HEAD", "a")))
        with proxy.counted() as seen:
            asking.start()
            deadline = time.monotonic() + PATIENCE_S
            while not len(seen) and time.monotonic() < deadline:
                time.sleep(0.01)
    asking.join(PATIENCE_S)
    assert not asking.is_alive()


def _ignoring(ask: Callable[[], object]) -> None:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        ask()


def test_a_store_that_knows_no_condition(client: PlainClient, behind: PlainClient, s3_link: FaultProxy) -> None:
    s3_link.inject(Unconditional())
    assert [client.put_if_absent("a", body) for body in (b"first", b"second")] == [200, 200]
    assert behind("GET", "a").body == b"second"


def test_which_requests_meet_it_and_how_often(client: PlainClient, s3_link: FaultProxy) -> None:
    rule = s3_link.inject(SLOW_DOWN, which(Kind.PUT, key=r"_delta_log/\d+\.json$"), times=2)
    log, data = "t/_delta_log/0.json", "t/a.parquet"
    asked = [("PUT", data), ("GET", log), ("PUT", log), ("PUT", log), ("PUT", log)]
    assert [client(method, key).status for method, key in asked] == [200, 404, 503, 503, 200]
    assert rule.met == 2


def test_the_first_rule_that_fits_is_taken_and_ends(client: PlainClient, s3_link: FaultProxy) -> None:
    s3_link.inject(INTERNAL_ERROR, times=1)
    with s3_link.faulty(SLOW_DOWN) as rule:
        assert [client("HEAD", "a").status for _ in range(3)] == [500, 503, 503]
    assert (client("HEAD", "a").status, rule.met) == (404, 2)
    s3_link.inject(SLOW_DOWN)
    s3_link.heal()
    assert client("HEAD", "a").status == 404


def test_credentials_that_expire_and_are_renewed(s3: S3Server, s3_link: FaultProxy) -> None:
    first, second = Credentials("ASIAOLD", "t/1+="), Credentials("ASIANEW", "t2")
    old, new, half = (
        PlainClient(s3_link.endpoint, s3.bucket, access_key=at.access_key, token=at.session_token)
        for at in (first, second, Credentials(second.access_key, first.session_token))
    )
    s3_link.credentials = first
    assert [one("PUT", "a", b"x").status for one in (old, new)] == [200, 400]
    s3_link.credentials = second
    assert [one("GET", "a").status for one in (old, new, half)] == [400, 200, 400]
    assert b"<Code>ExpiredToken</Code>" in old("GET", "a").body
    s3_link.heal()
    assert old("GET", "a").status == 200


def test_what_arrow_makes_of_it(s3: S3Server, s3_link: FaultProxy) -> None:
    """The words by which its errors are told apart."""
    files = arrow(s3_link.address)
    for fault, words in (
        (SLOW_DOWN, "SLOW_DOWN"), (INTERNAL_ERROR, "INTERNAL_FAILURE"), (ACCESS_DENIED, "ACCESS_DENIED"),
        (EXPIRED_TOKEN, "ExpiredToken"), (CutBefore(), "NETWORK_CONNECTION"),
    ):  # fmt: skip
        with s3_link.faulty(fault), pytest.raises(OSError, match=words):
            files.get_file_info(pyarrow.fs.FileSelector(f"{s3.bucket}/t"))


def test_many_clients_at_once(s3: S3Server, s3_link: FaultProxy) -> None:
    def ask(number: int) -> None:
        client = PlainClient(s3_link.endpoint, s3.bucket)
        for key in range(20):
            body = b"%d" % number * 1000
            assert client("PUT", f"{number}/{key}", body).status == 200
            assert client("GET", f"{number}/{key}").body == body

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    with s3_link.counted() as seen:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert seen.kinds() == {Kind.PUT: 120, Kind.GET: 120}
    assert {one.status for one in seen} == {200}


def test_it_speaks_to_a_client_that_closes(s3: S3Server, s3_link: FaultProxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", s3_link.port, timeout=PATIENCE_S)
    connection.request("HEAD", f"/{s3.bucket}/a", headers={"Connection": "close"})
    assert connection.getresponse().status in (403, 404)
    connection.close()
