"""Makes the archives of tests/fixtures/kafka-*: logs of a real broker, and what Kafka's own consumer reads in them.

    python -m tests.peers.kafka_fixture 3.9.2 4.3.1

Topics of one partition each: every compression, by producers and by the broker; keys, values and headers of every kind;
the broker's own times; transactions of two producers, interleaved, committed and aborted; a compacted log.
"""

import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from pipeline.spark.jars import java, resolve
from sources.kafka.cluster.settings import Isolation
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_reading import COLUMNS, consumed
from tests.peers.kafka_traffic import Record, create_topic, producer, send, transaction

FIXTURES = Path(__file__).parent.parent / "fixtures"
CLIENT = Path(__file__).parent / "java" / "KafkaClient.java"
COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
PRODUCED, TRANSACTIONS, COMPACTED, OWN_TIMES = "produced", "transactions", "compacted", "append-time"
BY_THE_BROKER = tuple(f"broker-{compression}" for compression in COMPRESSIONS)
TOPICS = (PRODUCED, *BY_THE_BROKER, OWN_TIMES, TRANSACTIONS, COMPACTED)
KEPT = (".log", ".txnindex")
ROLL = b"roll"
KEY = COLUMNS.index("key")
_SURELY_CLEANED = 100  # records, of more than 200
_CLIENT_WITHIN_S = 120


def make(version: str) -> Path:
    """The archive: a folder for each topic, with its log and its truth."""
    archive = FIXTURES / f"kafka-{version}" / f"kafka-{version}.tar.gz"
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with KafkaBroker(version, Path(folder) / "broker") as broker:
            _write(broker)
            kept = Path(folder) / "kept"
            wait_until(lambda: _keep(broker, kept), "a broker at rest")
        with tarfile.open(archive, "w:gz") as files:
            for path in sorted(kept.glob("*/*")):
                files.add(path, path.relative_to(kept))
    return archive


def _keep(broker: KafkaBroker, kept: Path) -> bool:
    """Whether the logs stayed as they were while they were consumed: the cleaner may still be at work."""
    try:
        logs = _logs(broker)
        _java(broker, "consume", broker.server, str(kept), *TOPICS)
        if logs != _logs(broker):
            return False
    except FileNotFoundError:  # it puts its segments in the place of others, one moment after these are gone
        return False
    for name, content in logs.items():
        (kept / name).write_bytes(content)
    return True


def _logs(broker: KafkaBroker) -> dict[str, bytes]:
    found = {}
    for topic in TOPICS:
        for path in broker.partition_folder(topic, 0).iterdir():
            if path.suffix in KEPT:
                found[f"{topic}/{path.name}"] = path.read_bytes()
    return {name: content for name, content in found.items() if content}


def _write(broker: KafkaBroker) -> None:
    for topic in (PRODUCED, TRANSACTIONS):
        create_topic(broker, topic)
    create_topic(broker, OWN_TIMES, message_timestamp_type="LogAppendTime")
    for topic, compression in zip(BY_THE_BROKER, COMPRESSIONS, strict=True):
        create_topic(broker, topic, compression_type=compression)
    _write_plain(broker, random.Random(1))
    broker.stop()
    broker.start()  # what follows is of another leader epoch
    _write_plain(broker, random.Random(2))
    _java(broker, "produce", broker.server, PRODUCED)
    _write_transactions(broker)
    _write_compacted(broker)


def _write_plain(broker: KafkaBroker, chance: random.Random) -> None:
    for compression in (None, *COMPRESSIONS):
        with producer(broker, compression_type=compression, batch_size=2000) as through:
            send(through, PRODUCED, _records(chance, 25))
    with producer(broker, batch_size=2000) as through:
        for topic in (*BY_THE_BROKER, OWN_TIMES):
            send(through, topic, _records(chance, 20))


def _records(chance: random.Random, count: int) -> Iterator[Record]:
    for number in range(count):
        text = b"value %d " % number * chance.choice((0, 1, 1, 2, 20))
        header = (chance.choice(("trace", "trace", "", "größe", "x" * 70)), chance.choice((b"", b"v", text)))
        key = chance.choice((b"key-%d" % number, b"", None))
        yield Record(
            value=text if key is None else chance.choice((text, text, None)),
            key=key,
            headers=[header] * chance.choice((0, 0, 1, 3)),
            timestamp_ms=chance.choice((None, None, 1, 1_700_000_000_000 + chance.randrange(10**6))),
        )


def _write_transactions(broker: KafkaBroker) -> None:
    """Two producers have transactions open at the same time, and one writes without."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(producer(broker, transactional_id=name)) for name in ("first", "second"))
        plain = stack.enter_context(producer(broker))
        for number in range(8):
            with transaction(first, commit=number % 3 != 1), transaction(second, commit=number % 2 == 0):
                for part in range(3):
                    send(first, TRANSACTIONS, [Record(b"first %d.%d" % (number, part), b"f")] * 2)
                    send(second, TRANSACTIONS, [Record(b"second %d.%d" % (number, part), b"s")])
                    send(plain, TRANSACTIONS, [Record(b"plain %d.%d" % (number, part))])
        for number in range(3):
            with transaction(first, commit=number == 2):
                send(first, TRANSACTIONS, [Record(b"again %d" % number, b"f")] * 3)


def _write_compacted(broker: KafkaBroker) -> None:
    """Until the cleaner went over it: some batches lost records, some all of them, and some are gone."""
    create_topic(
        broker,
        COMPACTED,
        cleanup_policy="compact",
        segment_ms=500,
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms=0,
    )
    for compression in (None, "gzip", "zstd"):
        with producer(broker, compression_type=compression, enable_idempotence=True, batch_size=600) as through:
            keys = [b"%d" % (number % 9 if number % 4 else number) for number in range(60)]
            send(through, COMPACTED, [Record(b"%d " % number * 20, key) for number, key in enumerate(keys)])
    with producer(broker, transactional_id="compacted") as through:
        for number in range(6):
            with transaction(through, commit=number % 2 == 0):
                keys = [b"%d" % key for key in range(number, 12)]
                send(through, COMPACTED, [Record(b"in a transaction %d" % number, key) for key in keys])
    with producer(broker) as through:
        send(through, COMPACTED, [Record(None, b"1"), Record(b"after", b"2")])

        def is_cleaned() -> bool:
            send(through, COMPACTED, [Record(b"rolls the segment", ROLL)])
            rows = consumed(broker, COMPACTED, Isolation.READ_UNCOMMITTED)
            return len([row for row in rows if row[KEY] != ROLL]) < _SURELY_CLEANED

        wait_until(is_cleaned, "a compacted topic")


def _java(broker: KafkaBroker, *words: str) -> None:
    jars = resolve("org.apache.kafka", "kafka_2.13", broker.version)
    subprocess.run([java(), "-cp", f"{jars}/*", str(CLIENT), *words], check=True, timeout=_CLIENT_WITHIN_S)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        made = make(wanted)
        sys.stdout.write(f"{made}: {made.stat().st_size} bytes\n")
