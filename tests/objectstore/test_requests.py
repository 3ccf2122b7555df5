"""What a warehouse on S3 costs in requests, which are money and time: docs/scaling.md."""

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from pipeline.monitoring import publisher
from pipeline.monitoring.publisher import Publisher
from pipeline.monitoring.run_state import runs_of
from sinks.delta.hooks import wait_for_checkpoints
from sinks.state.fence import this_writer
from sinks.storage.hadoop import remove_files
from sinks.storage.settings import VARIABLE
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import ACCESS_DENIED
from tests.objectstore.s3_requests import Kind, which
from tests.objectstore.server import PlainClient, at
from tests.patience import PATIENCE_S, eventually
from tests.pipeline.sample_progress import PROGRESS
from tests.sinks.groups import Members, sound

RECORD_BYTES = 100
BEFORE, BATCHES = 3, 20  # a checkpoint of each table
AT_MOST_A_BATCH = 12


@pytest.mark.spark
def test_a_batch_of_one_split_in_steady_state(spark: SparkSession, lake: str, s3_link: FaultProxy) -> None:
    members = Members(spark, lake, sound("a", sizes=(RECORD_BYTES,) * (BEFORE + BATCHES)))
    for number in range(1, BEFORE + 1):
        members.bring(number * RECORD_BYTES)
    with s3_link.counted() as seen:
        for number in range(BEFORE + 1, BEFORE + BATCHES + 1):
            members.bring(number * RECORD_BYTES)
        assert wait_for_checkpoints(PATIENCE_S)
    assert len(seen) / BATCHES <= AT_MOST_A_BATCH, seen.table()


def test_a_job_says_that_it_lives_in_one_request_whatever_it_replicates(
    s3: S3Server, s3_link: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read by a list, and two requests a job."""
    monkeypatch.setenv(VARIABLE, at(s3_link.endpoint).as_text())
    monkeypatch.setattr(publisher, "PUBLISH_EVERY_S", 0.01)
    lake = f"s3a://{s3.bucket}/lake"
    mine = Publisher(lake, this_writer())
    for number in range(20):
        mine.enter(f"rocketmq/{number}", lambda: PROGRESS, take_over=False)
    (first,) = runs_of(lake)
    assert eventually(lambda: runs_of(lake)[0].updated_at > first.updated_at)
    with s3_link.counted() as before:  # the answer to the look may still be on its way
        assert eventually(lambda: len(before) > 5)
    with s3_link.counted() as seen:
        assert eventually(lambda: len(seen) > 5)
    assert {one.request.method for one in seen} == {"PUT"}, seen.table()
    mine.close()
    with s3_link.counted() as seen:
        assert len(runs_of(lake)[0].logs) == 20
    assert len(seen) == 3, seen.table()


NAMES = [f"part-{number}.parquet" for number in range(300)]
REQUESTS = 2  # of 250 names at most


@pytest.mark.spark
def test_many_objects_of_a_folder_are_removed_in_a_request(
    spark: SparkSession, s3: S3Server, s3_link: FaultProxy, lake: str
) -> None:
    client = PlainClient.of(s3)
    for name in (*NAMES[1:], "other"):
        assert client("PUT", f"lake/log/{name}", b"1").status == 200
    with s3_link.counted() as seen:
        remove_files(spark, f"{lake}/log", NAMES)
    assert seen.kinds() == {Kind.DELETE_MANY: REQUESTS}
    assert [client("HEAD", f"lake/log/{name}").status for name in (NAMES[1], NAMES[-1], "other")] == [404, 404, 200]


@pytest.mark.spark
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
