"""Many objects of one folder are removed by few requests."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from sinks.storage.removal import remove_files
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import ACCESS_DENIED
from tests.objectstore.s3_requests import Kind, which
from tests.objectstore.server import PlainClient

pytestmark = pytest.mark.spark

NAMES = [f"part-{number}.parquet" for number in range(300)]
REQUESTS = 2  # of 250 names at most


def test_many_in_a_request(spark: SparkSession, s3: S3Server, s3_link: FaultProxy, lake: str) -> None:
    client = PlainClient.of(s3)
    for name in (*NAMES[1:], "other"):
        assert client("PUT", f"lake/log/{name}", b"1").status == 200
    with s3_link.counted() as seen:
        remove_files(spark, f"{lake}/log", NAMES)
    assert seen.kinds() == {Kind.DELETE_MANY: REQUESTS}
    assert [client("HEAD", f"lake/log/{name}").status for name in (NAMES[1], NAMES[-1], "other")] == [404, 404, 200]


def test_a_refused_removal_is_an_error(spark: SparkSession, s3: S3Server, s3_link: FaultProxy, lake: str) -> None:
    client = PlainClient.of(s3)
    for name in (NAMES[0], NAMES[-1]):
        assert client("PUT", f"lake/log/{name}", b"1").status == 200
    with s3_link.faulty(ACCESS_DENIED, which(Kind.DELETE_MANY), times=1), pytest.raises(OSError, match="AccessDenied"):
        remove_files(spark, f"{lake}/log", NAMES)
    assert [client("HEAD", f"lake/log/{name}").status for name in (NAMES[0], NAMES[-1])] == [200, 200]
    with s3_link.faulty(ACCESS_DENIED, which(Kind.DELETE_MANY), times=1):
        remove_files(spark, f"{lake}/log", NAMES, past_what_resists=True)
    assert [client("HEAD", f"lake/log/{name}").status for name in (NAMES[0], NAMES[-1])] == [200, 404]
