"""``make run`` as a newcomer runs it, shortened; as a process of its own in the night."""

import re
import socket
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.demo import rocketmq
from tests.pipeline.demos import DemoHere, ctrl_c_beyond, demo, finish
from tests.pipeline.read_back import count_of

PROJECT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def demo_here(spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> DemoHere:
    return DemoHere(capsys, monkeypatch)


def offsets_of(summary: str) -> tuple[int, int, int]:
    """Start and end of the range, and the acknowledged offset, as the summary shows them."""
    found = re.search(r"range\s+\[([\d,]+), ([\d,]+)\)", summary)
    acknowledged = re.search(r"acknowledged\s+([\d,]+)", summary)
    assert found, summary
    assert acknowledged, summary
    start, end, acked = (int(text.replace(",", "")) for text in (*found.groups(), acknowledged[1]))
    return start, end, acked


def check_summary(folder: Path, out: str, err: str) -> int:
    """What it shows of a first run is so. Returns where the log ends."""
    start, end, acknowledged = offsets_of(out)
    assert start == 0
    assert acknowledged == end
    assert "lag           0 B" in out
    assert re.search(r"\d\s+SEND_OK", out)  # producers waited, and were told
    assert "SLAVE_NOT_AVAILABLE" not in out  # none of them before the master had a replica
    assert "FLUSH_SLAVE_TIMEOUT" not in out
    assert "complete  0 to" in out
    assert "  equal" in out
    assert re.search(r"^  the same [1-9]\d* rows$", out, re.M)  # the table of change events, and their database
    assert "Traceback" not in err
    assert DeltaTable(folder / "warehouse" / "log").transaction_version("logtwin/rocketmq/embedded@0") == end
    assert count_of(folder / "warehouse") > 0
    return end


def test_it_ends_by_itself(tmp_path: Path, demo_here: DemoHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of its questions, of which Spark needs seconds for each; all of them by night."""
    asked = {title: query for title, query in rocketmq.QUERIES.items() if "FROM orders" in query}
    monkeypatch.setattr(rocketmq, "QUERIES", asked)
    out, err = demo_here(tmp_path, "--duration-s", "2", "--rate-per-s", "500")
    check_summary(tmp_path, out, err)
    assert re.search(r"^status +orders +amount *\n\w+ +[1-9]", out, re.MULTILINE)


@pytest.mark.nightly
def test_as_a_process_and_again_until_ctrl_c(tmp_path: Path, demo_here: DemoHere) -> None:
    out, err = finish(demo(tmp_path, "--duration-s", "4", "--rate-per-s", "500"))
    end = check_summary(tmp_path, out, err)
    for verb in ("sql", "report --serve", "status", "coverage", "verify"):  # as pasted: `tests/test_documents.py`
        assert re.search(rf"^  \S*logtwin {verb} --config \S*warehouse/demo.toml$", out, re.M), out

    with ctrl_c_beyond(end, tmp_path / "warehouse" / "log", "rocketmq/embedded"):
        out, err = demo_here(tmp_path, "--keep", "--rate-per-s", "500")
    assert "Traceback" not in err
    assert f"complete up to offset {end:,}" in out
    again_start, again_end, _ = offsets_of(out)
    assert again_start == end
    assert again_end > end


@pytest.mark.nightly
def test_into_an_s3_server_that_ends_with_it(tmp_path: Path, demo_here: DemoHere) -> None:
    out, err = demo_here(tmp_path, "--warehouse", "s3", "--duration-s", "2", "--rate-per-s", "500")
    _, end, acknowledged = offsets_of(out)
    assert acknowledged == end > 0
    assert "complete  0 to" in out
    assert "  equal" in out
    assert "orders" in out
    assert re.search(r"tables: s3://lake/warehouse, [1-9]\d* objects of [\d.]+ [kM]B; they end with the S3 server", out)
    assert "Traceback" not in err
    server = re.search(r"S3 server: http://127\.0\.0\.1:(\d+), warehouse s3://lake/warehouse", out)
    assert server is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(server[1])))
    assert "sql --config" in out
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert not (tmp_path / "store" / "s3").exists()


@pytest.mark.nightly
def test_the_demo_of_dister_follows_a_leader_through_a_lost_election(
    tmp_path: Path, demo_here: DemoHere, caplog: pytest.LogCaptureFixture
) -> None:
    out, err = demo_here(tmp_path, "--master", "dister", "--duration-s", "2", "--rate-per-s", "200")
    assert "50 entries were taken back, 80 others came" in out
    assert "the master overrules" in caplog.text
    assert "  equal" in out
    assert "Traceback" not in err
    assert count_of(tmp_path / "warehouse", "removed") == 50
    leader = tmp_path / "store" / "dister"
    assert {"dister.entry.log", "dister.service.db", "dister.peers.json"} <= {one.name for one in leader.iterdir()}
    assert count_of(tmp_path / "warehouse", "dister_kv") > 100
    assert count_of(tmp_path / "warehouse", "dister_services") == 3
