"""An object store, or the way to it, fails while a table is committed to: nothing is lost, doubled, or said too early.

What is in the tables is asked at the server, by another engine; what the master has is known from the master.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import S3Server
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE
from sinks.tables import LOG
from sinks.warehouse import ensure_tables
from sources.errors import ConfigurationError, LogtwinError, ReplicaError, StorageUnreachable
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
from tests.objectstore.server import PlainClient, at
from tests.patience import wait_until
from tests.sinks.groups import Members, sound

pytestmark = pytest.mark.spark

BYTES = 100
LARGE = "x" * 6_000_000
HANGS_S = 60.0  # patience_s is 4: what takes so long waits for nothing
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
MOMENTS: dict[str, Fault] = {
    "500": INTERNAL_ERROR,
    "503": SLOW_DOWN,
    "cut before": CutBefore(),
    "cut after": CutAfter(),
    "cut within": CutWithinAnswer(10),
    "late": Late(2.0),
}
TRICKIEST = ("500", "cut after", "cut within")
soak = partial(pytest.param, marks=pytest.mark.soak)


@pytest.fixture
def table(spark: SparkSession, lake: str) -> KernelTable:
    ensure_tables(spark, lake)
    return KernelTable(spark, LOG.path(lake))


def newest(table: KernelTable) -> Snapshot:
    found = table.snapshot()
    assert found is not None
    return found


# --- the committer


@pytest.mark.parametrize("fault", [CutAfter(), soak(CutBefore()), INTERNAL_ERROR, soak(SLOW_DOWN), CONFLICT], ids=str)
def test_one_version_each_whatever_is_answered(
    s3: S3Server, s3_link: FaultProxy, table: KernelTable, fault: Fault
) -> None:
    before = len(Lake(s3).versions())
    for number in range(4):
        with s3_link.faulty(fault, PUT_VERSION, times=number % 3) as rule:
            on = table.existing(to_commit=True)
            assert table.commit(on, domains={"number": str(number)}) == before + number
        assert rule.met == number % 3
    versions = [contents(version) for version in Lake(s3).versions()[before:]]
    assert [one["domainMetadata"]["configuration"] for one in versions] == ["0", "1", "2", "3"]


def test_answers_that_never_come(s3: S3Server, s3_link: FaultProxy, table: KernelTable) -> None:
    before = len(Lake(s3).versions())
    with s3_link.faulty(CutAfter(), PUT_VERSION) as rule:
        assert table.commit(newest(table), domains={"a": "1"}) == before
    assert rule.met > 1
    assert len(Lake(s3).versions()) == before + 1


@pytest.mark.parametrize("fault", [INTERNAL_ERROR, soak(SLOW_DOWN), soak(CutBefore()), CONFLICT, Held(8.0)], ids=str)
def test_a_store_that_is_away_is_said_to_be_within_patience(
    s3: S3Server, s3_link: FaultProxy, table: KernelTable, fault: Fault
) -> None:
    before, on = len(Lake(s3).versions()), newest(table)
    begin = time.monotonic()
    with s3_link.faulty(fault, PUT_VERSION) as rule, pytest.raises(StorageUnreachable):
        table.commit(on, domains={"a": "1"})
    assert time.monotonic() - begin < HANGS_S
    assert 2 <= rule.met < 20
    if isinstance(fault, Held):
        wait_until(lambda: len(Lake(s3).versions()) > before, "the write that was given up")
        assert newest(table).domain("a") == "1"
    assert table.commit(newest(table), domains={"b": "2"}) == before + isinstance(fault, Held)
    assert len(Lake(s3).versions()) == before + 1 + isinstance(fault, Held)


def test_a_silent_store_hangs_nobody(s3: S3Server, s3_link: FaultProxy, table: KernelTable) -> None:
    begin = time.monotonic()
    with s3_link.faulty(Late(5.0), which(Kind.LIST)), pytest.raises(StorageUnreachable):
        newest(table)
    assert time.monotonic() - begin < HANGS_S / 2
    begin = time.monotonic()
    with s3_link.faulty(Late(30.0), PUT_VERSION):
        table.commit(newest(table), domains={"a": "1"})  # it has come through, and is looked at
    assert time.monotonic() - begin < HANGS_S / 2


def test_whose_a_version_is_cannot_be_found_out(s3: S3Server, s3_link: FaultProxy, table: KernelTable) -> None:
    before, on = len(Lake(s3).versions()), newest(table)
    with (
        s3_link.faulty(CutAfter(), PUT_VERSION),
        s3_link.faulty(INTERNAL_ERROR, which(Kind.GET, Kind.HEAD, key=VERSION)),
        pytest.raises(StorageUnreachable),
    ):
        table.commit(on, domains={"a": "1"})
    assert newest(table).domain("a") == "1"
    assert len(Lake(s3).versions()) == before + 1


def test_a_bucket_that_is_gone_is_nothing_to_wait_for(s3_link: FaultProxy, table: KernelTable) -> None:
    on = newest(table)
    with s3_link.faulty(NO_SUCH_BUCKET, PUT_VERSION), pytest.raises(ReplicaError, match="does not exist") as caught:
        table.commit(on, domains={"a": "1"})
    assert not caught.value.is_transient


# --- conflicts


def test_another_version_is_a_conflict_also_for_who_tries_once(table: KernelTable) -> None:
    on = newest(table)
    table.commit(on, domains={"a": "1"})
    with pytest.raises(KernelConflict):
        table.replace(on, [], [], domains={"b": "2"})
    with pytest.raises(KernelConflict):
        table.set_properties(on, {"delta.logRetentionDuration": "interval 9 days"})


def test_a_version_that_is_no_json_is_somebody_elses(s3: S3Server, table: KernelTable) -> None:
    on = newest(table)
    assert PlainClient.of(s3).put_if_absent(f"lake/log/_delta_log/{on.version + 1:020d}.json", b"\xff{") == 200
    with pytest.raises(ReplicaError):
        table.commit(on, domains={"a": "1"})
    assert len(Lake(s3).versions()) == on.version + 2


def test_a_snapshot_of_the_past_commits_as_carefully(s3: S3Server, s3_link: FaultProxy, table: KernelTable) -> None:
    on = newest(table)
    table.commit(on, domains={"a": "1"})
    with s3_link.counted() as seen:
        table.commit(table.snapshot_at(on.version), domains={"b": "2"})
    assert {one.request.is_conditional for one in seen.of(Kind.PUT, key=VERSION)} == {True}
    assert len(Lake(s3).versions()) == on.version + 3


# --- large versions


@pytest.fixture
def in_parts(spark: SparkSession, s3: S3Server) -> Iterator[None]:
    """Whatever has more than 5 MiB is an upload in parts."""
    names = [f"fs.s3a.bucket.{s3.bucket}.multipart.{name}" for name in ("size", "threshold")]
    configuration = spark._jsc.hadoopConfiguration()
    for name in names:
        configuration.set(name, "5M")
    yield
    for name in names:
        configuration.unset(name)


def test_a_large_version_is_one_request(s3: S3Server, s3_link: FaultProxy, table: KernelTable) -> None:
    with s3_link.counted() as seen:
        version = table.commit(newest(table), domains={"a": LARGE * 3})
    assert [one.request.is_conditional for one in seen.of(Kind.PUT, Kind.COMPLETE, key=VERSION)] == [True]
    assert contents(Lake(s3).versions()[version])["domainMetadata"]["configuration"] == LARGE * 3


def test_an_upload_in_parts_has_the_condition(
    in_parts: None, s3: S3Server, s3_link: FaultProxy, table: KernelTable
) -> None:
    on = newest(table)
    with s3_link.counted() as seen:
        version = table.commit(on, domains={"a": LARGE})
    assert [one.request.is_conditional for one in seen.of(Kind.COMPLETE, key=VERSION)] == [True]
    with pytest.raises(KernelConflict):
        table.commit(on, domains={"a": LARGE + "y"})
    table.commit(on, domains={"b": LARGE})
    versions = [contents(one)["domainMetadata"] for one in Lake(s3).versions()[version:]]
    assert [(one["domain"], len(one["configuration"])) for one in versions] == [("a", len(LARGE)), ("b", len(LARGE))]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(INTERNAL_ERROR, Kind.INITIATE), (INTERNAL_ERROR, Kind.PART), (INTERNAL_ERROR, Kind.COMPLETE)],
)
def test_what_of_a_large_version_came_through_is_not_there(
    in_parts: None, s3: S3Server, s3_link: FaultProxy, table: KernelTable, fault: Fault, kind: Kind
) -> None:
    before, on = len(Lake(s3).versions()), newest(table)
    with s3_link.faulty(fault, which(kind, key=VERSION)), pytest.raises(StorageUnreachable):
        table.commit(on, domains={"a": LARGE})
    assert len(Lake(s3).versions()) == before
    with s3_link.faulty(CutAfter(), which(Kind.COMPLETE, key=VERSION), times=1) as rule:
        assert table.commit(newest(table), domains={"a": LARGE}) == before
    assert rule.met == 1
    assert contents(Lake(s3).versions()[before])["domainMetadata"]["configuration"] == LARGE


# --- stores without the condition


@pytest.mark.parametrize("fault", [Unconditional(), NOT_IMPLEMENTED, INVALID_ARGUMENT], ids=str)
def test_a_store_without_the_condition_is_refused_unless_one_alone_writes(
    spark: SparkSession,
    s3: S3Server,
    s3_link: FaultProxy,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    s3_link.inject(fault, lambda request: request.is_conditional)
    with pytest.raises(ConfigurationError, match="single_writer"):
        ensure_tables(spark, lake)
    left = PlainClient.of(s3)("GET", "?list-type=2&prefix=lake/").body
    assert b"_tries_" not in left
    assert b".json" not in left
    monkeypatch.setenv(VARIABLE, at(s3_link.endpoint, single_writer=True).as_text())
    ensure_tables(spark, lake)
    table = KernelTable(spark, LOG.path(lake))
    version = table.commit(newest(table), domains={"a": "1"})
    assert len(Lake(s3).versions()) == version + 1


@pytest.mark.parametrize("fault", [CutAfter(), CONFLICT, soak(SLOW_DOWN), EXPIRED_TOKEN], ids=str)
def test_a_store_that_fails_while_it_is_tried_is_not_one_without_the_condition(
    spark: SparkSession, s3: S3Server, s3_link: FaultProxy, lake: str, fault: Fault
) -> None:
    tried = which(Kind.PUT, key="_tries_")
    with s3_link.faulty(fault, tried, times=1):
        try:
            ensure_tables(spark, lake)
        except StorageUnreachable:
            assert fault is EXPIRED_TOKEN
    with s3_link.counted() as seen:
        ensure_tables(spark, lake)
    assert bool(seen.of(Kind.PUT, key="_tries_")) == (fault is EXPIRED_TOKEN)


# --- batches


class Job:
    """Batches of one log of 100 bytes a record, as a job goes about them: where the storage is away it begins anew."""

    def __init__(self, spark: SparkSession, warehouse: str, lake: Lake) -> None:
        self._spark, self._warehouse, self._lake = spark, warehouse, lake
        self.master = sound("a", sizes=(BYTES,) * 12)["a"]
        self.session = Distrustful(lambda: lake.position("a"))
        self._members: Members | None = None

    def bring(self, records: int) -> LogtwinError | None:
        """What has kept it from it."""
        try:
            if self._members is None:
                self._members = Members(self._spark, self._warehouse, {"a": self.master}, sessions={"a": self.session})
            self._members.bring(records * BYTES)
        except LogtwinError as error:
            self._members = None
            return error
        failed = self._members.errors.get("a")
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
    for records in (1, 2):
        assert started.bring(records) is None
    return started


@pytest.mark.parametrize(
    "fault", [fault if name in TRICKIEST else soak(fault) for name, fault in MOMENTS.items()], ids=MOMENTS
)
def test_a_moment_of_each_request_is_got_over(s3_link: FaultProxy, job: Job, fault: Fault) -> None:
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
        ("list", INTERNAL_ERROR),
        soak("head", INTERNAL_ERROR),
        soak("get", INTERNAL_ERROR),
        ("put data", INTERNAL_ERROR),
        soak("put data", CutAfter()),
        soak("put version", INTERNAL_ERROR),
        soak("put version", SLOW_DOWN),
        ("put version", CutAfter()),
        ("put version", Held(6.0)),
        ("put checkpoint", INTERNAL_ERROR),
    ],
    ids=str,
)
def test_a_store_that_is_away_is_waited_for(s3_link: FaultProxy, job: Job, request_kind: str, fault: Fault) -> None:
    begin = time.monotonic()
    with s3_link.faulty(fault, REQUESTS[request_kind]) as rule:
        error = job.bring(4)
    assert time.monotonic() - begin < HANGS_S
    assert error is None or (isinstance(error, StorageUnreachable) and rule.met)
    for records in (4, 5, 6):
        assert job.bring(records) is None
    job.assert_all(6)


@pytest.mark.parametrize("is_token_new", [True, soak(False)])
def test_keys_that_expire_and_are_renewed(
    spark: SparkSession,
    s3: S3Server,
    s3_link: FaultProxy,
    lake: str,
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
    reach(spark, placed(lake), str(tmp_path))
    job = Job(spark, lake, Lake(s3))
    for records in (1, 2):
        assert job.bring(records) is None
    for number in (2, 3):
        s3_link.credentials = Credentials("KEY" if is_token_new else f"KEY{number}", f"token-{number}")
        for _ in range(2):
            error = job.bring(number + 1)
            assert isinstance(error, StorageUnreachable)
        renew(number)
        assert job.bring(number + 1) is None
    job.assert_all(4)
