"""The link to the S3 server: sound it changes nothing; a fault is what a client of S3 would meet, and is logged so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
import urllib3

from pipeline.demo.s3_server import S3Server
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import (
    SLOW_DOWN,
    Answer,
    CutAfter,
    CutBefore,
    CutWithinAnswer,
    Fault,
    other_region,
)
from tests.objectstore.s3_requests import Kind, which
from tests.objectstore.server import PlainClient
from tests.patience import PATIENCE_S

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
    assert [one.status for one in seen] == [200, 200, 206, 200, 404, 412, 200, 204]
    assert seen.kinds() == {Kind.PUT: 2, Kind.GET: 2, Kind.HEAD: 2, Kind.LIST: 1, Kind.DELETE: 1}
    assert (seen.all[0].sent_bytes, seen.all[1].answer_bytes, seen.all[2].answer_bytes) == (len(LARGE), len(LARGE), 5)
    assert s3_link.connections == 1


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


@pytest.mark.parametrize("fault", [SLOW_DOWN, other_region("eu-west-1")], ids=lambda fault: fault.code)
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
