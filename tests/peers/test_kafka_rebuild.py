"""The files of a topic's partitions, out of the tables, and a broker that serves them."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from pipeline.cli.app import main
from pipeline.config.configuration import Config
from pipeline.inspect.selection import subjects
from pipeline.operate.rebuild_topic import RebuiltTopicLog, TopicRebuild
from sinks.books.ledger import LedgerRows
from sources.errors import Divergent, ReplicaError
from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.columns import canonical
from sources.kafka.rebuilt_partitions import OWN, RebuiltPartition, folder_name
from sources.master import Chunk
from sources.offsets import END, LogId, Offset, OffsetRange
from sources.rebuilt_folder import RebuiltFolder
from sources.records import KAFKA_SCHEMA
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_compaction import compacted_topic
from tests.peers.kafka_reading import consumed, partition_of, pieces_of, rows
from tests.peers.kafka_traffic import Record, create_topic, delete_records, producer, send, transaction
from tests.peers.kafka_twin import config_of, state_of, table
from tests.pipeline.edited_rows import edit_rows, make_hole
from tests.pipeline.running import replicate_now
from tests.sources.kafka.batches import decode
from tests.sources.kafka.test_batch_encoding import records, row

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.timeout(600)]

TOPIC = "rebuilt"
PARTITIONS = 3
ALL = OffsetRange(Offset(0), END)


@dataclass(frozen=True)
class Replica:
    """Of topics of a broker that goes on without us."""

    lake: Path
    config: Config

    def log(self, partition: int, topic: str = TOPIC) -> LogId:
        return LogId("kafka", f"test/{topic}/{partition}")


@pytest.fixture(scope="module")
def replica(spark: SparkSession, newest_kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Replica:
    """Of a topic with records of every kind, and of a compacted one. Not to be changed."""
    broker = newest_kafka
    create_topic(broker, TOPIC, PARTITIONS)
    _send_mixed(broker)
    broker.kill()
    broker.start()  # what follows is of another leader epoch
    _send_mixed(broker)
    delete_records(broker, TOPIC, 1, 25)
    compacted_topic(broker, "rebuilt-compacted")
    lake = tmp_path_factory.mktemp("rebuilt-lake")
    config = config_of(broker, lake, TOPIC, "rebuilt-compacted", on_loss="record", split_offsets=60)
    replicate_now(spark, config)
    return Replica(lake, config)


def _send_mixed(broker: KafkaBroker) -> None:
    """To the partitions 0 and 1; partition 2 stays empty. Both end with what has no record: an aborted transaction."""
    with producer(broker, batch_size=2000) as plain, producer(broker, transactional_id="rebuilt") as in_turn:
        for partition in range(2):
            for number in range(9):
                send(plain, TOPIC, _records(number), partition)
                with transaction(in_turn, commit=number % 3 != 2):
                    send(in_turn, TOPIC, [Record(b"in a transaction", b"t")] * 3, partition)


def _records(number: int) -> Iterator[Record]:
    yield Record(b"", None, timestamp_ms=1_700_000_000_000 + number)
    yield Record(None, b"a tombstone", timestamp_ms=1)
    yield Record(b"large " * 1000 * number, b"", [("h", b""), ("h", b"v"), ("größe", b"\xff" * 200)])
    yield Record(b"now", b"\0")


def rebuild(spark: SparkSession, lake: Path, config: Config, to: Path) -> list[RebuiltTopicLog]:
    """All partitions, in files of 30 kB."""
    log_ids = [one.log_id for one in subjects(config)]
    return list(TopicRebuild(spark, str(lake), log_ids, with_epochs=True).write(to, 30_000, zero_holes=False))


@pytest.fixture(scope="module")
def rebuilt(spark: SparkSession, replica: Replica, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    to = tmp_path_factory.mktemp("rebuilt") / "logs"
    made = rebuild(spark, replica.lake, replica.config, to)
    assert {one.folder for one in made} == {path.name for path in to.iterdir()}
    assert sum(one.files for one in made) == len(list(to.glob("*/*.log")))
    return to


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def stored_rows(replica: Replica, log_id: LogId) -> pa.Table:
    found = table(replica.lake, "kafka_log").filter(pc.equal(pc.field("log_id"), str(log_id)))
    return found.sort_by("offset").select(KAFKA_SCHEMA.names).cast(KAFKA_SCHEMA)


def all_logs(replica: Replica) -> list[LogId]:
    return [*(replica.log(number) for number in range(PARTITIONS)), replica.log(0, "rebuilt-compacted")]


def test_every_partition_has_the_rows_of_the_table_and_ends_at_the_position(
    spark: SparkSession, replica: Replica, rebuilt: Path
) -> None:
    for log_id in all_logs(replica):
        log = b"".join(path.read_bytes() for path in files(rebuilt / folder_name(log_id)))
        found = decode(log, ALL, (), Isolation.READ_UNCOMMITTED)
        expected = stored_rows(replica, log_id)
        assert canonical(found.records) == b"".join(map(canonical, expected.combine_chunks().to_batches()))
        position = state_of(spark, replica.lake, log_id.name.split("/")[1]).partitions[int(log_id.name[-1])]
        assert (found.reached, found.epoch) == (position.offset, position.leader_epoch)
        assert int(files(rebuilt / folder_name(log_id))[0].stem) == position.first
    mixed = stored_rows(replica, replica.log(0))
    assert len(mixed) == 2 * 9 * 4 + 2 * 6 * 3
    assert len(files(rebuilt / f"{TOPIC}-0")) > 3
    assert len(set(mixed["leader_epoch"].to_pylist())) == 2
    assert mixed["offset"][-1].as_py() + 1 < state_of(spark, replica.lake, TOPIC).partitions[0].offset
    assert files(rebuilt / f"{TOPIC}-1")[0].stem == f"{25:020d}"
    assert files(rebuilt / f"{TOPIC}-2") == [rebuilt / f"{TOPIC}-2" / f"{0:020d}.log"]


def test_a_broker_serves_every_record_and_goes_on_at_the_position(
    spark: SparkSession, replica: Replica, rebuilt: Path, each_kafka: KafkaBroker
) -> None:
    """As a new topic, of which it knows nothing but the files."""
    create_topic(each_kafka, "restored", PARTITIONS)
    each_kafka.stop()
    for number in range(PARTITIONS):
        _replace(each_kafka.partition_folder("restored", number), rebuilt / f"{TOPIC}-{number}")
    each_kafka.start()
    for number, one in state_of(spark, replica.lake, TOPIC).partitions.items():
        stored = stored_rows(replica, replica.log(number)).combine_chunks().to_batches()
        expected = [(*row[:2], "restored", *row[3:]) for batch in stored for row in rows(batch)]
        assert consumed(each_kafka, "restored", Isolation.READ_COMMITTED, number) == expected
        with producer(each_kafka) as through:
            assert send(through, "restored", [Record(b"the next one")], number) == [one.offset]
        assert len(consumed(each_kafka, "restored", Isolation.READ_COMMITTED, number)) == len(expected) + 1


@pytest.mark.nightly
@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_of_many_elections_goes_to_a_new_one_without_its_epochs(tmp_path: Path, version: str) -> None:
    """With them clients would be told that the log was cut: no leader of the new topic knows of epoch 57."""
    log_id, rows_written = LogId.parse("kafka/test/elected/0"), range(60)
    with RebuiltFolder(tmp_path / "to", OWN) as folder:
        made = RebuiltPartition(folder, log_id, Offset(0), 10_000)
        for at in rows_written:
            made.write(records([row(at, value=bytes(500), leader_epoch=0 if at < 20 else 57)]))
        made.finish(Offset(65), 57)
        folder.finish()
    with KafkaBroker(version, tmp_path / "new") as new:
        create_topic(new, "elected")
        new.stop()
        _replace(new.partition_folder("elected", 0), tmp_path / "to/elected-0")
        new.start()
        with producer(new) as through:
            assert send(through, "elected", [Record(b"the next one")]) == [65]
        assert [one[0] for one in consumed(new, "elected", Isolation.READ_COMMITTED)] == [*rows_written, 65]
        partition = partition_of(new, "elected", chunk_bytes=2000)
        ours = [piece for piece in pieces_of(partition, partition.bounds()) if isinstance(piece, Chunk)]
        assert [at for one in ours for at in one.records.column("offset").to_pylist()] == [*rows_written, 65]


def _replace(folder: Path, with_files: Path) -> None:
    """As docs/trust.md says: the broker's segments, indexes and checkpoints go, the topic's id stays."""
    for path in folder.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in with_files.iterdir():
        shutil.copy(path, folder)


def job(replica: Replica, folder: Path) -> Path:
    """A configuration with brokers that are gone."""
    path = folder / "job.toml"
    path.write_text(
        f'warehouse = "{replica.lake}"\n[[topics]]\ncluster = "test"\ntopics = ["{TOPIC}"]\nservers = "127.0.0.1:1"\n'
    )
    return path


@pytest.mark.parametrize(
    ("log", "numbers", "with_epochs"),
    [(f"kafka/test/{TOPIC}", (0, 1, 2), True), (f"kafka/test/{TOPIC}/1", (1,), False)],
)
def test_the_verb_takes_a_topic_or_a_partition_and_no_broker(
    replica: Replica,
    rebuilt: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    log: str,
    numbers: tuple[int, ...],
    *,
    with_epochs: bool,
) -> None:
    to, config = tmp_path / "logs", str(job(replica, tmp_path))

    def rebuild_by_verb(log: str, *more: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(["rebuild", "--config", config, "--log", log, "--to", str(to), *more])
        return int(ended.value.code or 0)

    assert rebuild_by_verb(f"kafka/test/{TOPIC}/7") == 2  # never replicated
    assert not to.exists()
    assert rebuild_by_verb(log, "--file-size-bytes", "30000", *(["--with-epochs"] if with_epochs else [])) == 0
    assert {path.name for path in to.iterdir()} == {f"{TOPIC}-{number}" for number in numbers}
    for path in to.glob("*/*"):
        assert (path.read_bytes() == (rebuilt / path.relative_to(to)).read_bytes()) == with_epochs
    said = capsys.readouterr().out
    assert f"kafka/test/{TOPIC}/1: " in said
    assert f"in {to}/{TOPIC}-1, the log from 25 to " in said
    assert ("; leader epochs up to " in said) == with_epochs
    assert rebuild_by_verb(log) == 2  # what is there now is not overwritten


@pytest.fixture
def copied(replica: Replica, tmp_path: Path) -> Replica:
    return Replica(shutil.copytree(replica.lake, tmp_path / "lake"), replica.config)


def test_a_changed_row_stops_it_and_names_the_offset(spark: SparkSession, copied: Replica, tmp_path: Path) -> None:
    log_id = copied.log(1)
    at = stored_rows(copied, log_id)["offset"][-1].as_py()
    edit_rows(
        copied.lake / "kafka_log",
        {at: lambda row: [row | {"value": b"another"} if row["log_id"] == str(log_id) else row]},
    )
    with pytest.raises(Divergent, match="do not give the bytes") as caught:
        rebuild(spark, copied.lake, copied.config, tmp_path / "logs")
    assert caught.value.log == str(log_id)
    assert caught.value.offset is not None
    assert caught.value.offset <= at
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


@pytest.mark.nightly
def test_a_hole_is_refused_or_left_out(spark: SparkSession, copied: Replica, tmp_path: Path) -> None:
    log_id = copied.log(0)
    of_the_log = LedgerRows(spark, str(copied.lake), log_id).overlapping(ALL)
    hole = make_hole(spark, copied.lake, log_id, of_the_log[1:2], "kafka_log")
    source = TopicRebuild(spark, str(copied.lake), [log_id])
    with pytest.raises(ReplicaError, match="would have holes") as caught:
        source.write(tmp_path / "logs", None, zero_holes=False)
    assert str(hole) in str(caught.value)
    assert "--zero-holes" in str(caught.value)
    assert not (tmp_path / "logs").exists()
    (made,) = source.write(tmp_path / "logs", None, zero_holes=True)
    assert made.left_out == (hole,)
    assert f"none in {hole}" in made.text(tmp_path)
    (file,) = files(tmp_path / "logs" / f"{TOPIC}-0")
    found = decode(file.read_bytes(), ALL, (), Isolation.READ_UNCOMMITTED)
    expected = stored_rows(copied, log_id)["offset"].to_pylist()
    assert found.records.column("offset").to_pylist() == expected
    assert not any(offset in hole for offset in expected)
    assert found.reached == made.log.end
