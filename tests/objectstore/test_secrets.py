"""Keys of a store are where they were named, and nowhere else: not in what a run says, as loudly as it can, not in a
file or an object that it writes. And what a store refuses is said by the command line."""

import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from pipeline.demo.s3_server import OWNER, READER, Keys, S3Server
from pipeline.system.folders import cache_folder
from sinks.storage.check import check_storage
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.storage.settings import VARIABLE
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from tests.objectstore.server import at
from tests.peers.test_secured_replication import LOUD
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.job_toml import job_toml
from tests.pipeline.running import own_cache
from tests.sinks.groups import Members, sound

TOKEN = "FwoGZXIvYXdzEBYaDE-a-session-token-that-nobody-may-see"  # noqa: S105 - the server takes any
VERBS = """
for verb in verbs:
    try:
        main([*verb, "--config", "job.toml"])
    except SystemExit as ended:
        if ended.code:
            raise
"""
"""One after the other, in one process: its session is made once."""
STRANGER = Keys("AKIANOBODY0000000000", "the-secret-of-nobody-at-all-000000000000")
CALL = "main()\n"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def job_file(
    folder: Path, server: S3Server, log: Path, warehouse: str, more: Mapping[str, str] = MappingProxyType({})
) -> Path:
    events = folder / "events"
    events.mkdir(parents=True)
    storage = {
        "endpoint": server.endpoint, "access_key": "env:LAKE_KEY", "secret_key": "env:LAKE_SECRET", **more,
    }  # fmt: skip
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
        "spark.eventLog.compress": "false",
    }
    return job_toml(folder, {"path": log}, warehouse=warehouse, storage=storage, spark=spark)


def logtwin(code: str, job: Path, keys: Keys, cache: Path) -> tuple[int, bytes]:
    """`code` in a process of its own, where `job` is: its exit code, and all that it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"LAKE_KEY": keys.access_key, "LAKE_SECRET": keys.secret_key, "LAKE_TOKEN": TOKEN}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "LOGTWIN_CACHE": str(cache)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=job.parent, env=environment, capture_output=True, check=False, timeout=180)
    return done.returncode, done.stdout + done.stderr


def objects(server: S3Server) -> dict[str, bytes]:
    filesystem = pafs.S3FileSystem(
        access_key=OWNER.access_key, secret_key=OWNER.secret_key, endpoint_override=server.address, scheme="http",
        region=server.region,
    )  # fmt: skip
    found = filesystem.get_file_info(pafs.FileSelector(server.bucket, recursive=True))
    contents = {}
    for one in found:
        if one.is_file:
            with filesystem.open_input_stream(one.path) as stream:
                contents[one.path] = stream.read()
    return contents


def test_a_key_is_neither_said_nor_written(
    spark: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By our own process, at its loudest, or in what Spark and Java show of themselves."""
    named = {"access_key": OWNER.access_key, "secret_key": OWNER.secret_key, "session_token": TOKEN}
    for name, key in named.items():
        (tmp_path / name).write_text(key)
    monkeypatch.setenv(VARIABLE, at(s3.endpoint, **{name: f"file:{tmp_path / name}" for name in named}).as_text())
    lake = f"s3a://{s3.bucket}/lake"
    # a verb that ran in this process before has muted py4j
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "py4j"):
        reach(spark, placed(lake), tempfile.gettempdir())
        Members(spark, lake, sound("a", sizes=(100,))).bring(100)
    java = spark._jvm.java.lang.System.getProperties().toString()  # type: ignore[union-attr]  # while it runs
    shown = {"Spark": str(spark.sparkContext.getConf().getAll()), "Java": str(java)}
    texts = {"said": caplog.text.encode(), **{name: text.encode() for name, text in shown.items()}, **objects(s3)}
    assert "fs.s3a" in caplog.text  # py4j says what it is told
    assert [name for name in texts if name.endswith(".parquet")]
    assert not [(key, name) for key in named.values() for name, text in texts.items() if key.encode() in text]


@pytest.mark.nightly
def test_no_secret_stays(s3: S3Server, log: FaultyLog, tmp_path: Path) -> None:
    """Spark's event log is what its UI shows: properties, plans, what tasks said."""
    warehouse = f"s3a://{s3.bucket}/twin"
    job = job_file(tmp_path / "job", s3, log.path, warehouse, {"session_token": "env:LAKE_TOKEN"})
    cache = own_cache(tmp_path)
    verbs = [["replicate", "--available-now"], ["status", "--json"], ["coverage"]]
    code, said = logtwin(f"{LOUD.removesuffix(CALL)}\nverbs = {verbs}{VERBS}", job, OWNER, cache)
    assert code == 0, said[-3000:].decode(errors="replace")

    written = objects(s3)
    assert [name for name in written if name.startswith(f"{s3.bucket}/twin/log/") and name.endswith(".parquet")]
    files = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    texts = {"said": said, **written, **files}
    assert b"DEBUG:py4j" in said
    assert b'"acknowledged"' in said
    assert [
        text for text in files.values() if re.search(rb"^\d\d:\d\d:\d\d DEBUG \w+: ", text, re.MULTILINE)
    ]  # Spark's
    assert [text for text in texts.values() if b"env:LAKE_SECRET" in text]  # else it is no wonder that there is nothing
    secrets = (OWNER.access_key, OWNER.secret_key, TOKEN)
    assert not [(secret, name) for secret in secrets for name, text in texts.items() if secret.encode() in text]


def test_a_reader_may_not_write(spark: SparkSession, s3_guarded: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER_KEY", READER.access_key)
    monkeypatch.setenv("READER_SECRET", READER.secret_key)
    keys = {"access_key": "env:READER_KEY", "secret_key": "env:READER_SECRET"}
    place = placed("s3a://guarded/readers")
    for more in ({"session_token": "env:READER_KEY"}, {}):  # a token that is gone is not sent any more
        monkeypatch.setenv(VARIABLE, at(s3_guarded.endpoint, **keys, **more).as_text())
        reach(spark, place, tempfile.gettempdir())
    check_storage(place)
    with pytest.raises(ReplicaError, match=r"s3a://guarded/readers/log.*Access ?Denied.*reached and written") as caught:
        ensure_tables(spark, str(place))
    assert type(caught.value) is ReplicaError  # none that passes
    assert not [key for key in (READER.access_key, READER.secret_key) if key in str(caught.value)]
    assert objects(s3_guarded) == {}


@pytest.mark.parametrize(
    ("verb", "keys", "warehouse", "words"),
    [
        ("replicate", OWNER, "s3a://nowhere/twin", "there is no bucket nowhere"),
        ("verify", STRANGER, "s3a://guarded/twin", "it does not know our access key"),
    ],
)
def test_a_wrong_bucket_and_a_wrong_key_end_a_verb_before_a_jvm_starts(
    s3_guarded: S3Server, tmp_path: Path, verb: str, keys: Keys, warehouse: str, words: str
) -> None:
    """Else its event log would be there."""
    job = job_file(tmp_path / "job", s3_guarded, tmp_path, warehouse)
    code, said = logtwin(f"from pipeline.cli.app import main\nverbs = [[{verb!r}]]{VERBS}", job, keys, cache_folder())
    assert (code, words.encode() in said) == (2, True), said.decode()
    assert len(said.splitlines()) == 1
    assert list((tmp_path / "job" / "events").iterdir()) == []
    assert keys.access_key.encode() not in said


@pytest.mark.nightly
def test_logtwin_sql_shows_no_key_and_carries_none_away(s3: S3Server, log: FaultyLog, tmp_path: Path) -> None:
    """By whatever name: a property of Java, a variable of the environment, a path on another host."""
    warehouse = f"s3a://{s3.bucket}/asked"
    job = job_file(tmp_path / "job", s3, log.path, warehouse)
    cache = own_cache(tmp_path)
    asked = [
        "SELECT '${system:aws.secretAccessKey}' AS a, '${env:LAKE_SECRET}' AS b, '${hiveconf:fs.s3a.secret.key}' AS c",
        "SELECT count(*) AS kept FROM delta.`WAREHOUSE/log`".replace("WAREHOUSE", warehouse),
    ]
    verbs = [["replicate", "--available-now"], ["sql", "-e", ";".join(asked), "--format", "json"]]
    code, said = logtwin(f"from pipeline.cli.app import main\nverbs = {verbs}{VERBS}", job, OWNER, cache)
    assert code == 0, said[-3000:].decode(errors="replace")
    literal = b'{"a":"${system:aws.secretAccessKey}","b":"${env:LAKE_SECRET}","c":"${hiveconf:fs.s3a.secret.key}"}'
    assert literal in said
    assert b'{"kept":' in said
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        host = f"127.0.0.1:{elsewhere.getsockname()[1]}"
        away = "SELECT * FROM csv.`webhdfs://HOST/${env:LAKE_SECRET}`".replace("HOST", host)
        code, said = logtwin(
            f"from pipeline.cli.app import main\nverbs = {[['sql', '-e', away]]}{VERBS}", job, OWNER, cache
        )
        assert (code, b"this session only reads" in said) == (2, True), said.decode()
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert OWNER.secret_key.encode() not in said
