"""A RocketMQ log as a master log, by path."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from sources.epochs import Epoch
from sources.offsets import Offset
from sources.rocketmq.files.controller_store import encode_epoch_file
from sources.rocketmq.log import RocketMQLog
from tests.log_lines import said_by
from tests.sources.rocketmq.log_reading import ALL, LOG_ID, owned, truth_between
from tests.truth import Fixture


def test_files_are_cut_at_records(fixture_log: Fixture) -> None:
    log = RocketMQLog(log_id=LOG_ID, path=str(fixture_log.commitlog_path), split_bytes=200_000)
    starts = truth_between(fixture_log, 0, ALL)
    count = -(-fixture_log.max_offset // 225_000)  # a split may be an eighth longer
    size_bytes = -(-fixture_log.max_offset // count)  # as large as each other
    pieces = log.plan(owned(0, fixture_log.max_offset))
    assert log.traits.cuts_at_records
    assert log.traits.cuts_batches
    cut, expected = 0, []
    while cut < fixture_log.max_offset:
        end = min((start for start in starts if start >= cut + size_bytes), default=fixture_log.max_offset)
        expected.append(owned(cut, end))
        cut = end
    assert pieces == tuple(expected)


def test_files_that_a_fail_over_may_cut_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The epoch file as CheckpointFile of 5.5.0 writes it: a count, a CRC, a line of each epoch."""
    (tmp_path / "commitlog").mkdir()
    log = RocketMQLog(log_id=LOG_ID, path=str(tmp_path / "commitlog"))
    log.check()
    assert said_by(RocketMQLog.__module__, caplog) == []
    epochs = "1-0\n2-4096\n"
    crc = zlib.crc32(epochs.encode()) & 0x7FFFFFFF  # as UtilAll.crc32
    (tmp_path / "epochFileCheckpoint").write_text(f"2\n{crc}\n{epochs}")
    log.check()
    (record,) = (one for one in caplog.records if one.name == RocketMQLog.__module__)
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"{LOG_ID}: {tmp_path}/commitlog is the log of a broker in controller mode")
    assert "confirm offset" in record.message


def test_a_line_an_epoch_as_a_broker_has_written_it() -> None:
    """Section 3.5 of the RocketMQ notes."""
    assert encode_epoch_file((Epoch(1, Offset(0)),)) == b"1\n1725254278\n1-0\n"
    head, _, lines = encode_epoch_file((Epoch(1, Offset(0)), Epoch(12, Offset(4096)))).split(b"\n", 2)
    assert (head, lines) == (b"2", b"1-0\n12-4096\n")
