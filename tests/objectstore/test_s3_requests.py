"""What a request asks for is read from its line and headers alone."""

from __future__ import annotations

import pytest

from tests.objectstore.s3_requests import Kind, request_of

_COPY = {"x-amz-copy-source": "/lake/from"}


@pytest.mark.parametrize(
    ("method", "target", "headers", "kind"),
    [
        ("GET", "/lake/log/a.parquet", {}, Kind.GET),
        ("HEAD", "/lake/log/a.parquet", {}, Kind.HEAD),
        ("PUT", "/lake/log/a.parquet", {}, Kind.PUT),
        ("PUT", "/lake/log/a.parquet?x-id=PutObject", {}, Kind.PUT),
        ("PUT", "/lake/log/a.parquet", _COPY, Kind.COPY),
        ("DELETE", "/lake/log/a.parquet", {}, Kind.DELETE),
        ("POST", "/lake?delete", {}, Kind.DELETE_MANY),
        ("POST", "/lake/?delete=", {}, Kind.DELETE_MANY),
        ("GET", "/lake?list-type=2&prefix=log%2F", {}, Kind.LIST),
        ("GET", "/lake/?prefix=log/", {}, Kind.LIST),
        ("POST", "/lake/log/a?uploads", {}, Kind.INITIATE),
        ("PUT", "/lake/log/a?partNumber=1&uploadId=u", {}, Kind.PART),
        ("POST", "/lake/log/a?uploadId=u", {}, Kind.COMPLETE),
        ("DELETE", "/lake/log/a?uploadId=u", {}, Kind.ABORT),
        ("GET", "/lake?uploads", {}, Kind.LIST_UPLOADS),
        ("HEAD", "/lake", {}, Kind.BUCKET),
        ("PUT", "/lake", {}, Kind.BUCKET),
        ("GET", "/lake//a", {}, Kind.GET),
    ],
)
def test_kinds(method: str, target: str, headers: dict[str, str], kind: Kind) -> None:
    assert request_of(method, target, headers).kind is kind
