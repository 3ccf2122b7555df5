"""A job whose tables are in a metastore of Hive, as `[catalog]` asks, and a session that knows only their names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.system.folders import cache_folder
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.pipeline.job_toml import job_toml
from tests.pipeline.masters import embedded_master

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]  # six JVMs with a metastore

PROJECT = Path(__file__).parents[2]
QUESTION = """
import json, sys
from pathlib import Path
from pipeline.config.configuration import load
from pipeline.spark.session import build_session

spark = build_session(load(Path(sys.argv[1])).spark)
rows = spark.sql("SELECT id, n FROM lake.orders ORDER BY id").collect()
counts = [spark.table(f"lake.{name}").count() for name in ("messages", "completeness", "incidents")]
print(json.dumps([[list(row) for row in rows], counts, sorted(t.name for t in spark.catalog.listTables("lake"))]))
"""


def test_tables_are_found_by_name_from_another_session(tmp_path: Path) -> None:
    """The embedded metastore of one process after the other: Derby lets one in at a time."""
    metastore = f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true"
    with embedded_master(tmp_path / "store") as master, Producer(master.master.address) as producer:
        spark = {
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": tmp_path / "managed",
            "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
            "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
        }
        orders = {"name": "orders", "from": ["orders"], "mode": "upsert", "key": ["id"]}
        job = job_toml(tmp_path, master.options, tables=[orders], catalog={"schema": "lake"}, spark=spark)
        for number in range(2):  # the second run finds its names taken, by itself
            for key in "ab":
                producer.send(OutgoingMessage("orders", json.dumps({"id": key, "n": number}).encode(), {}, queue_id=0))
            logtwin(tmp_path, "-m", "pipeline", "replicate", "--available-now", "--config", str(job))
        rows, counts, names = json.loads(logtwin(tmp_path, "-c", QUESTION, str(job)).splitlines()[-1])
        assert rows == [["a", 1], ["b", 1]]
        assert counts == [4, 1, 0]
        assert {"log", "orders", "messages"} <= set(names)
        logtwin(tmp_path, "-m", "pipeline", "tables", "drop", "orders", "--yes", "--config", str(job))
        gone = QUESTION.replace("SELECT id, n FROM lake.orders ORDER BY id", "SELECT 1")
        assert "orders" not in json.loads(logtwin(tmp_path, "-c", gone, str(job)).splitlines()[-1])[2]


def logtwin(folder: Path, *arguments: str) -> str:
    """What a process of its own says on its standard output, once it has ended well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT), "LOGTWIN_CACHE": str(cache_folder())},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-4000:]
    return done.stdout
