"""Messages pass as they are, whatever pieces they come in, and one that ends early is no message."""

from __future__ import annotations

from io import BytesIO

import pytest

from tests.objectstore.http_wire import Broken, Head, pass_body, read_head

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
