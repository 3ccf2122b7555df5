"""An object store, or the way to it, fails while a table is committed to: nothing is lost, doubled, or said too early.

What is in the tables is asked at the server, by another engine; what the master has is known from the master.
"""

import itertools
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from sinks.delta.kernel import KernelConflict, KernelTable
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE
from sinks.tables import LOG
from sinks.warehouse import ensure_tables
from sources.errors import ConfigurationError, LogtwinError, ReplicaError, StorageUnreachable
from tests.objectstore.conftest import lake_on
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import (
    CONFLICT,
    EXPIRED_TOKEN,
    INTERNAL_ERROR,
    NO_SUCH_BUCKET,
    NOT_IMPLEMENTED,
    SLOW_DOWN,
    Answer,
    Credentials,
    CutAfter,
    CutBefore,
    CutWithinAnswer,
    Fault,
    Held,
    Late,
    Unconditional,
)
from tests.objectstore.lake import Distrustful, Lake
from tests.objectstore.racing import contents
from tests.objectstore.s3_requests import Kind, which
from tests.objectstore.server import PlainClient, at, with_own_bucket
from tests.patience import wait_until
from tests.sinks.groups import Members, sound

pytestmark = pytest.mark.spark

BYTES = 100
LARGE = "x" * 6_000_000
VERSION = r"/_delta_log/\d+\.json$"
PUT_VERSION = which(Kind.PUT, key=VERSION)
REQUESTS = {
    "list": which(Kind.LIST),
    "head": which(Kind.HEAD),
    "get": which(Kind.GET),
    "put data": which(Kind.PUT, key=r"/log/[^/]+\.parquet$"),
    "put version": PUT_VERSION,
    "put checkpoint": which(Kind.PUT, key=r"checkpoint|\.crc$"),
}
INVALID_ARGUMENT = Answer(400, "InvalidArgument", "A conditional write is not supported here")
_NUMBERS = itertools.count(1)
nightly = partial(pytest.param, marks=pytest.mark.nightly)


@pytest.fixture(scope="module")
def s3(s3_process: S3Server) -> S3Server:
    """One bucket, and one warehouse, for all tests that leave it as sound as it was."""
    return with_own_bucket(s3_process)


@pytest.fixture(scope="module")
def made(spark: SparkSession, s3: S3Server, s3_way: FaultProxy) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        warehouse = lake_on(spark, s3, s3_way, patch)
        ensure_tables(spark, warehouse)
        yield warehouse


@pytest.fixture
def lake(spark: SparkSession, made: str) -> str:
    """Also where the test before had other keys."""
    reach(spark, placed(made), tempfile.gettempdir())
    return made


@pytest.fixture
def table(spark: SparkSession, lake: str) -> KernelTable:
    return KernelTable(spark, LOG.path(lake))


@pytest.fixture
def untried(spark: SparkSession, s3: S3Server, lake: str) -> S3Server:
    """A bucket that the process has not used."""
    own = with_own_bucket(s3)
    reach(spark, placed(f"s3a://{own.bucket}/lake"), tempfile.gettempdir())
    return own


def configurations(versions: list[bytes]) -> list[str]:
    return [contents(version)["domainMetadata"]["configuration"] for version in versions]


@pytest.mark.parametrize(
    "fault", [CutAfter(), INTERNAL_ERROR, CONFLICT, nightly(CutBefore()), nightly(SLOW_DOWN)], ids=str
)
def test_one_version_each_whatever_is_answered(
    s3: S3Server, s3_link: FaultProxy, table: KernelTable, fault: Fault
) -> None:
    start = table.existing().version + 1
    for number in range(3):
        with s3_link.faulty(fault, PUT_VERSION, times=number) as rule:
            assert table.commit(table.existing(to_commit=True), domains={"number": str(number)}) == start + number
        assert rule.met == number
    assert configurations(Lake(s3).versions(start)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    "fault", [INTERNAL_ERROR, Held(8.0), nightly(SLOW_DOWN), nightly(CutBefore()), nightly(CONFLICT)], ids=str
)
def test_an_unreachable_store_ends_the_commit(
    s3: S3Server, s3_link: FaultProxy, table: KernelTable, fault: Fault
) -> None:
    """After a few attempts. A write that was given up may arrive all the same, and counts then."""
    on = table.existing()
    with s3_link.faulty(fault, PUT_VERSION) as rule, pytest.raises(StorageUnreachable):
        table.commit(on, domains={"a": str(fault)})
    assert 2 <= rule.met < 20
    arrives = isinstance(fault, Held)
    if arrives:
        wait_until(lambda: bool(Lake(s3).versions(on.version + 1)), "the write that was given up")
        assert table.existing().domain("a") == str(fault)
    assert table.commit(table.existing(), domains={"b": "2"}) == on.version + 1 + arrives
    assert len(Lake(s3).versions(on.version + 1)) == 1 + arrives


def test_late_answers_are_not_waited_for(s3_link: FaultProxy, table: KernelTable) -> None:
    with s3_link.faulty(Late(5.0), which(Kind.LIST)), pytest.raises(StorageUnreachable):
        table.existing()  # an answer that was waited for would be one
    with s3_link.faulty(Late(60.0), PUT_VERSION), s3_link.counted() as seen:
        table.commit(table.existing(), domains={"a": "1"})  # it has come through, and is looked at
        assert {one.status for one in seen.of(Kind.PUT, key=VERSION)} == {None}


def test_a_version_that_cannot_be_looked_at_is_an_unreachable_store(
    s3: S3Server, s3_link: FaultProxy, table: KernelTable
) -> None:
    on = table.existing()
    with (
        s3_link.faulty(CutAfter(), PUT_VERSION),
        s3_link.faulty(INTERNAL_ERROR, which(Kind.GET, Kind.HEAD, key=rf"/{on.version + 1:020d}\.json$")),
        pytest.raises(StorageUnreachable),
    ):
        table.commit(on, domains={"a": "unknown"})
    assert table.existing().domain("a") == "unknown"
    assert len(Lake(s3).versions(on.version + 1)) == 1


def test_a_missing_bucket_is_final(s3_link: FaultProxy, table: KernelTable) -> None:
    on = table.existing()
    with s3_link.faulty(NO_SUCH_BUCKET, PUT_VERSION), pytest.raises(ReplicaError, match="does not exist") as caught:
        table.commit(on, domains={"a": "1"})
    assert not caught.value.is_transient


def test_a_damaged_version_is_not_overwritten(spark: SparkSession, s3: S3Server, lake: str) -> None:
    ensure_tables(spark, f"{lake}-damaged")
    table, there = KernelTable(spark, LOG.path(f"{lake}-damaged")), Lake(s3, "lake-damaged")
    on = table.existing()
    name = f"{there.folder}/log/_delta_log/{on.version + 1:020d}.json"
    assert PlainClient.of(s3).put_if_absent(name, b"\xff{") == 200
    with pytest.raises(ReplicaError):
        table.commit(on, domains={"a": "1"})
    assert there.versions(on.version + 1) == [b"\xff{"]


def test_a_commit_on_an_old_snapshot_is_conditional(s3: S3Server, s3_link: FaultProxy, table: KernelTable) -> None:
    on = table.existing()
    table.commit(on, domains={"a": "1"})
    with s3_link.counted() as seen:
        table.commit(table.snapshot_at(on.version), domains={"b": "2"})
    assert {one.request.is_conditional for one in seen.of(Kind.PUT, key=VERSION)} == {True}
    assert configurations(Lake(s3).versions(on.version + 1)) == ["1", "2"]


@pytest.fixture
def in_parts(spark: SparkSession, untried: S3Server) -> tuple[KernelTable, Lake]:
    """A table in whose bucket whatever has more than 5 MiB is an upload in parts."""
    for name in ("size", "threshold"):
        spark._jsc.hadoopConfiguration().set(f"fs.s3a.bucket.{untried.bucket}.multipart.{name}", "5M")
    ensure_tables(spark, f"s3a://{untried.bucket}/lake")
    return KernelTable(spark, LOG.path(f"s3a://{untried.bucket}/lake")), Lake(untried)


def test_an_upload_in_parts_has_the_condition(s3_link: FaultProxy, in_parts: tuple[KernelTable, Lake]) -> None:
    table, there = in_parts
    on = table.existing()
    with s3_link.counted() as seen:
        version = table.commit(on, domains={"a": LARGE})
    assert [one.request.is_conditional for one in seen.of(Kind.COMPLETE, key=VERSION)] == [True]
    with pytest.raises(KernelConflict):
        table.commit(on, domains={"a": LARGE + "y"})
    assert configurations(there.versions(version)) == [LARGE]


@pytest.mark.parametrize("fault", [Unconditional(), nightly(NOT_IMPLEMENTED), nightly(INVALID_ARGUMENT)], ids=str)
def test_a_store_without_the_condition_is_refused_unless_one_alone_writes(
    spark: SparkSession, untried: S3Server, s3_link: FaultProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    lake = f"s3a://{untried.bucket}/lake"
    s3_link.inject(fault, lambda request: request.is_conditional)
    with pytest.raises(ConfigurationError, match="single_writer"):
        ensure_tables(spark, lake)
    left = PlainClient.of(untried)("GET", "?list-type=2&prefix=lake/").body
    assert b"_tries_" not in left
    assert b".json" not in left
    monkeypatch.setenv(VARIABLE, at(s3_link.endpoint, single_writer=True).as_text())
    ensure_tables(spark, lake)
    table = KernelTable(spark, LOG.path(lake))
    version = table.commit(table.existing(), domains={"a": "1"})
    assert len(Lake(untried).versions()) == version + 1


@pytest.mark.parametrize("fault", [CutAfter(), EXPIRED_TOKEN, nightly(CONFLICT), nightly(SLOW_DOWN)], ids=str)
def test_a_failing_store_may_still_know_the_condition(
    spark: SparkSession, untried: S3Server, s3_link: FaultProxy, fault: Fault
) -> None:
    tried, lake = which(Kind.PUT, key="_tries_"), f"s3a://{untried.bucket}/lake"
    with s3_link.faulty(fault, tried, times=1):
        try:
            ensure_tables(spark, lake)
        except StorageUnreachable:
            assert fault is EXPIRED_TOKEN
    with s3_link.counted() as seen:
        ensure_tables(spark, lake)
    assert bool(seen.of(Kind.PUT, key="_tries_")) == (fault is EXPIRED_TOKEN)


class Job:
    """Batches of one log of 100 bytes a record, as a job goes about them: where the storage is away it begins anew."""

    def __init__(self, spark: SparkSession, warehouse: str, lake: Lake) -> None:
        self._spark, self._warehouse, self._lake = spark, warehouse, lake
        self._name = f"job-{next(_NUMBERS)}"
        self.master = sound(self._name, sizes=(BYTES,) * 12)[self._name]
        self.session = Distrustful(lambda: lake.position(self._name))
        self._members: Members | None = None

    def bring(self, records: int) -> LogtwinError | None:
        """What has kept it from it."""
        try:
            if self._members is None:
                masters, sessions = {self._name: self.master}, {self._name: self.session}
                self._members = Members(self._spark, self._warehouse, masters, sessions=sessions)
            self._members.bring(records * BYTES)
        except LogtwinError as error:
            self._members = None
            return error
        failed = self._members.errors.get(self._name)
        if failed is not None:
            self._members = None
        return failed

    def assert_all(self, records: int) -> None:
        self._lake.assert_one_copy(self.master, records * BYTES)
        assert self.session.early == []
        assert self.session.promises[-1] == records * BYTES


@pytest.fixture
def job(spark: SparkSession, lake: str, s3: S3Server) -> Job:
    started = Job(spark, lake, Lake(s3))
    assert started.bring(2) is None
    return started


@pytest.mark.parametrize(
    "fault",
    [CutAfter(), *map(nightly, (INTERNAL_ERROR, SLOW_DOWN, CutBefore(), CutWithinAnswer(10), Late(2.0)))],
    ids=str,
)
def test_a_fault_of_each_kind_of_request_loses_nothing(s3_link: FaultProxy, job: Job, fault: Fault) -> None:
    records = 2
    for when in REQUESTS.values():
        records += 1
        with s3_link.faulty(fault, when, times=1):
            while (error := job.bring(records)) is not None:
                assert isinstance(error, StorageUnreachable)
    job.assert_all(records)


@pytest.mark.parametrize(
    ("request_kind", "fault"),
    [
        ("put version", CutAfter()),
        nightly("put version", INTERNAL_ERROR),
        nightly("put version", SLOW_DOWN),
        nightly("put version", Held(6.0)),
        nightly("put data", INTERNAL_ERROR),
        nightly("put data", CutAfter()),
        nightly("put checkpoint", INTERNAL_ERROR),
        nightly("list", INTERNAL_ERROR),
        nightly("head", INTERNAL_ERROR),
        nightly("get", INTERNAL_ERROR),
    ],
    ids=str,
)
def test_a_job_goes_on_when_the_store_is_back(s3_link: FaultProxy, job: Job, request_kind: str, fault: Fault) -> None:
    with s3_link.faulty(fault, REQUESTS[request_kind]) as rule:
        error = job.bring(4)
    assert error is None or (isinstance(error, StorageUnreachable) and rule.met)
    for records in (4, 5, 6):
        assert job.bring(records) is None
    job.assert_all(6)


@pytest.mark.parametrize("is_token_new", [True, nightly(False)])
def test_keys_that_expire_and_are_renewed(
    spark: SparkSession,
    untried: S3Server,
    s3_link: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_token_new: bool,
) -> None:
    def renew(number: int) -> Credentials:
        key = "KEY" if is_token_new else f"KEY{number}"
        for name, text in (("access", key), ("secret", f"secret-{number}"), ("token", f"token-{number}")):
            (tmp_path / name).write_text(f"{text}\n")
        return Credentials(key, f"token-{number}")

    named = {"access_key": "access", "secret_key": "secret", "session_token": "token"}
    storage = at(s3_link.endpoint, **{name: f"file:{tmp_path}/{file}" for name, file in named.items()})
    monkeypatch.setenv(VARIABLE, storage.as_text())
    s3_link.credentials = renew(1)
    lake = f"s3a://{untried.bucket}/lake"
    reach(spark, placed(lake), str(tmp_path))
    ensure_tables(spark, lake)
    job = Job(spark, lake, Lake(untried))
    assert job.bring(2) is None
    for number in (2, 3):
        s3_link.credentials = Credentials("KEY" if is_token_new else f"KEY{number}", f"token-{number}")
        for _ in range(2):
            error = job.bring(number + 1)
            assert isinstance(error, StorageUnreachable)
        renew(number)
        assert job.bring(number + 1) is None
    job.assert_all(4)
