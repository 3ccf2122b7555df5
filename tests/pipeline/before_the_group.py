"""A warehouse by the code of c0b61b0, in which each log had a query and a checkpoint of its own, and its masters.

Run by that code it makes the archive; run by today's it is where a test finds what was made:

    git worktree add --detach /tmp/before c0b61b0
    cd /tmp/before && PYTHONPATH=/tmp/before python -P <here>/before_the_group.py <archive>

`rocketmq/damaged` passed a damaged record, and its last run was killed when it had committed: its ledger is owed a row.
`rocketmq/repaired` was rewritten and repaired, so it is in epoch 1. ``dister/shop`` and ``kafka/test/orders`` were
replicated in two runs each. What a broker needs to go on is in the folder kafka.
"""

from __future__ import annotations

import random
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.job.replicate import Job
from sinks.batch.result import BatchStep
from sinks.healing.repair import Repair
from sources.datasource import register
from sources.dister.embedded.leader import EmbeddedLeader
from sources.offsets import Offset
from sources.registry import open_log
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_traffic import Record, create_topic, producer, send
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.schedules import Killed
from tests.spark_session import delta_session

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "before-the-group" / "before-the-group.tar.gz"
MESSAGES = 14
KEPT_OF_KAFKA = ("__consumer_offsets-0", "__cluster_metadata-0", "orders-0", "orders-1")


class Making:
    """Everything below `folder`."""

    def __init__(self, spark: SparkSession, folder: Path, broker: KafkaBroker) -> None:
        self.spark = spark
        self.folder = folder
        self.lake = folder / "lake"
        self.broker = broker
        self.damaged, self.repaired = FaultyLog(folder / "damaged"), FaultyLog(folder / "repaired")
        self.moments = random.Random(20261124)
        register(spark)

    def run(self) -> None:
        create_topic(self.broker, "orders", 2)
        self._write(first=0)
        bad = Offset(self.damaged.boundaries[5] + 95)
        self.damaged.flip(bad)
        self._replicate()
        self.damaged.flip(bad)  # the disk is mended; the replica has a hole
        self.repaired.rewrite_from(self.repaired.boundaries[9], self.moments)
        Repair(self.spark, str(self.lake), open_log(self._config().logs[1])).run()
        self._write(first=MESSAGES)
        self._replicate("repaired", "shop", "orders")
        with suppress(Killed):
            self._replicate("damaged", on_step=_die_after_the_commit)

    def _write(self, first: int) -> None:
        """So many of each."""
        for log in (self.damaged, self.repaired):
            log.append(self.moments, MESSAGES)
        with EmbeddedLeader(self.folder / "shop", group="shop", seed=7) as leader:
            for number in range(first, first + MESSAGES):
                leader.write({f"key-{number % 5}": str(number)})
        with producer(self.broker) as through:
            for partition in range(2):
                send(through, "orders", [Record(b"%d" % n, b"k") for n in range(first, first + MESSAGES)], partition)

    def _replicate(self, *only: str, on_step: Callable[[BatchStep], None] | None = None) -> None:
        job = Job(self.spark, self._config(*only), available_now=True, on_step=on_step)
        job.start()
        job.run(poll_interval_s=0.02)

    def _config(self, *only: str) -> Any:
        logs = [
            {"id": f"rocketmq/{name}", "path": str(log.path), "on_loss": "record", "max_bytes_per_trigger": 3000}
            for name, log in (("damaged", self.damaged), ("repaired", self.repaired))
        ]
        logs.append({"id": "dister/shop", "path": str(self.folder / "shop"), "max_entries_per_trigger": 5})
        topic = {"cluster": "test", "topics": ["orders"], "servers": self.broker.server, "max_offsets_per_trigger": 20}
        wanted = [one for one in logs if not only or str(one["id"]).partition("/")[2] in only]
        topics = [topic] if not only or "orders" in only else []
        return parse({"warehouse": str(self.lake), "logs": wanted, "topics": topics}, where="made")


def _die_after_the_commit(step: BatchStep) -> None:
    if step is BatchStep.COMMIT:
        raise Killed("killed")


def _packed(folder: Path, archive: Path) -> None:
    """Without what is made anew: Hadoop's checksums, Kafka's indexes, the logs' own archives."""
    shutil.rmtree(folder / "lake" / "_runs", ignore_errors=True)
    for log in ("damaged", "repaired"):
        shutil.rmtree(folder / log / "archive")
    for path in (folder / "kafka" / "data").iterdir():
        if path.is_dir() and path.name not in KEPT_OF_KAFKA:
            shutil.rmtree(path)
    with tarfile.open(archive, "w:gz", compresslevel=9) as files:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith((".crc", ".index", ".timeindex", ".txnindex", ".out", ".jar")):
                files.add(path, path.relative_to(folder))


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "made"
        with KafkaBroker(VERSIONS[-1], folder / "kafka") as broker:
            Making(delta_session(Path(root) / "spark"), folder, broker).run()
        _packed(folder, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
