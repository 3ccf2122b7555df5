"""Messages pass as they are, whatever pieces they come in, and one that ends early is no message."""

from __future__ import annotations

from io import BytesIO

import pytest

from tests.objectstore.http_wire import Broken, Head, has_body, pass_body, read_head

_CHUNKED = b"5;chunk-signature=aa\r\nhello\r\n0;chunk-signature=bb\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"


def head(*headers: tuple[str, str], line: str = "PUT /lake/a HTTP/1.1") -> Head:
    return Head(line, headers)


def test_a_head_is_read_and_packed_as_it_was() -> None:
    raw = b"GET /lake/a?x=1 HTTP/1.1\r\nHost: h:1\r\nX-Amz-Date: 1:2\r\nEmpty: \r\n\r\n"
    found = read_head(BytesIO(raw + b"rest"))
    assert found is not None
    assert (found.method, found.target, found.get("x-amz-date"), found.get("empty")) == (
        "GET",
        "/lake/a?x=1",
        "1:2",
        "",
    )
    assert found.packed() == raw
    assert b"Host" not in found.without("host").packed()


def test_no_more_messages_and_half_a_one() -> None:
    assert read_head(BytesIO(b"")) is None
    with pytest.raises(Broken):
        read_head(BytesIO(b"GET / HTTP/1.1\r\nHost: h"))


@pytest.mark.parametrize(
    ("line", "connection", "keeps"),
    [
        ("GET / HTTP/1.1", "", True),
        ("GET / HTTP/1.1", "close", False),
        ("HTTP/1.1 200 OK", "Close", False),
        ("GET / HTTP/1.0", "", False),
        ("GET / HTTP/1.0", "Keep-Alive", True),
    ],
)
def test_whether_another_message_may_come(line: str, connection: str, keeps: bool) -> None:
    assert head(("Connection", connection), line=line).keeps_connection == keeps


def test_a_body_with_a_length() -> None:
    source, sink = BytesIO(b"hello, and the next"), BytesIO()
    assert pass_body(head(("Content-Length", "5")), source, sink) == 5
    assert (sink.getvalue(), source.read(1)) == (b"hello", b",")


def test_a_chunked_body_with_trailers_passes_untouched() -> None:
    source, sink = BytesIO(_CHUNKED + b"next"), BytesIO()
    assert pass_body(head(("Transfer-Encoding", "chunked")), source, sink) == len(_CHUNKED)
    assert (sink.getvalue(), source.read()) == (_CHUNKED, b"next")


@pytest.mark.parametrize("length", range(len(_CHUNKED)))
def test_a_body_that_ends_early(length: int) -> None:
    with pytest.raises(Broken):
        pass_body(head(("Transfer-Encoding", "chunked")), BytesIO(_CHUNKED[:length]), None)


def test_a_body_that_is_cut() -> None:
    sink = BytesIO()
    with pytest.raises(Broken):
        pass_body(head(("Content-Length", "9")), BytesIO(b"123456789"), sink, most=4)
    assert sink.getvalue() == b"1234"


def test_answers_without_a_body() -> None:
    assert has_body("GET", head(line="HTTP/1.1 200 OK"))
    assert not has_body("HEAD", head(line="HTTP/1.1 200 OK"))
    assert not has_body("DELETE", head(line="HTTP/1.1 204 No Content"))
