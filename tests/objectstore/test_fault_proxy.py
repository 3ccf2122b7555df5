"""The link to the S3 server: sound it changes nothing; a fault is what a client of S3 would meet, and is logged so."""

from __future__ import annotations

import pytest
import urllib3

from pipeline.demo.s3_server import S3Server
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import CutAfter, CutBefore, CutWithinAnswer, Fault
from tests.objectstore.s3_requests import Kind, which
from tests.objectstore.server import PlainClient

LARGE = bytes(range(256)) * 50_000


@pytest.fixture
def client(s3: S3Server, s3_link: FaultProxy) -> PlainClient:
    """Asks by way of the link."""
    return PlainClient(s3_link.endpoint, s3.bucket)


def test_without_a_fault_it_is_the_server(client: PlainClient, s3: S3Server, s3_link: FaultProxy) -> None:
    with s3_link.counted() as seen:
        assert client("PUT", "a/b", LARGE).status == 200
        assert client("GET", "a/b").body == PlainClient.of(s3)("GET", "a/b").body == LARGE
        assert client("GET", "a/b", headers={"Range": "bytes=5-9"}).body == LARGE[5:10]
        assert client("HEAD", "a/b").headers["content-length"] == str(len(LARGE))
        assert client("HEAD", "none").status == 404
        assert client("PUT", "a/b", b"x", {"If-None-Match": "*"}).status == 412
        assert b"<Key>a/b</Key>" in client("GET", "?list-type=2&prefix=a/").body
        assert client("DELETE", "a/b").status == 204
    assert [one.status for one in seen] == [200, 200, 206, 200, 404, 412, 200, 204]
    assert seen.kinds() == {Kind.PUT: 2, Kind.GET: 2, Kind.HEAD: 2, Kind.LIST: 1, Kind.DELETE: 1}


@pytest.mark.parametrize(("fault", "is_done"), [(CutBefore(), False), (CutAfter(), True)])
def test_a_connection_that_breaks_before_or_after_the_server_has_acted(
    fault: Fault, is_done: bool, client: PlainClient, s3: S3Server, s3_link: FaultProxy
) -> None:
    client("HEAD", "a")  # a connection that is kept
    s3_link.inject(fault, which(Kind.PUT), times=1)
    with s3_link.counted() as seen:
        with pytest.raises(urllib3.exceptions.HTTPError):
            client("PUT", "a", LARGE, {"If-None-Match": "*"})
        assert (PlainClient.of(s3)("HEAD", "a").status == 200) == is_done
        assert client.put_if_absent("a", b"again") == (412 if is_done else 200)
    assert [one.status for one in seen] == [None, 412 if is_done else 200]


def test_an_answer_that_breaks_off(client: PlainClient, s3_link: FaultProxy) -> None:
    client("PUT", "a", LARGE)
    with s3_link.faulty(CutWithinAnswer(1000), which(Kind.GET)), pytest.raises(urllib3.exceptions.HTTPError):
        client("GET", "a")
    assert client("GET", "a").body == LARGE
