"""What a request asks for is read from its line and headers alone."""

from __future__ import annotations

import pytest

from tests.objectstore.s3_requests import Kind, RequestLog, Seen, request_of, which

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


def test_names_are_decoded() -> None:
    request = request_of("GET", "/lake/log/a%20b%2Fc/day=2026-01-01/%C3%A4?versionId=1", {})
    assert (request.bucket, request.key) == ("lake", "log/a b/c/day=2026-01-01/ä")
    assert request_of("GET", "/lake?prefix=log%2F_delta_log%2F&delimiter=%2F", {}).query["prefix"] == "log/_delta_log/"
    assert request_of("GET", "http://127.0.0.1:1/lake/a", {}).key == "a"


def test_whose_it_is() -> None:
    signature = "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=f0"
    request = request_of("GET", "/lake/a", {"Authorization": signature, "X-Amz-Security-Token": "t"})
    assert (request.access_key, request.session_token) == ("AKIA1", "t")
    assert request_of("GET", "/lake/a", {}).access_key is None


def test_a_condition_is_one_of_a_write() -> None:
    condition = {"If-None-Match": "*"}
    assert request_of("PUT", "/lake/a", condition).is_conditional
    assert request_of("POST", "/lake/a?uploadId=u", condition).is_conditional
    assert not request_of("GET", "/lake/a", condition).is_conditional


def test_which() -> None:
    put, get = request_of("PUT", "/lake/t/_delta_log/0.json", {}), request_of("GET", "/lake/t/a.parquet", {})
    wanted = which(Kind.PUT, Kind.PART, key=r"_delta_log/\d+\.json$")
    assert wanted(put)
    assert not wanted(get)
    assert not wanted(request_of("PUT", "/lake/t/_delta_log/0.crc", {}))
    assert which()(get)
    assert which(key="parquet")(get)
    assert not which(Kind.PUT, conditional=True)(put)


def test_a_log_as_lines_and_as_a_table() -> None:
    log = RequestLog()
    log.all.append(Seen(request_of("PUT", "/lake/a", {}), 200, sent_bytes=10))
    log.all.append(Seen(request_of("PUT", "/lake/b", {}), 200, sent_bytes=1500))
    log.all.append(Seen(request_of("PUT", "/lake/b", {})))
    log.all.append(Seen(request_of("GET", "/lake?prefix=x/", {}), 200, answer_bytes=7))
    assert log.lines() == ["put a 200", "put b 200", "put b cut", "list x/ 200"]
    assert log.kinds() == {Kind.PUT: 3, Kind.LIST: 1}
    assert len(log.of(Kind.PUT, key="^b$")) == 2
    assert [line.split() for line in log.table().splitlines()[1:]] == [
        ["list", "200", "1", "0", "7"],
        ["put", "200", "2", "1,510", "0"],
        ["put", "cut", "1", "0", "0"],
    ]
