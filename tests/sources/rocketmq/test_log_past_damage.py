"""A RocketMQ log that gets past damage, and its bytes as they are: from its files, and from its broker over HA."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sources.errors import ChecksumMismatch
from sources.master import Damage
from sources.offsets import Offset
from sources.options import MasterOptions, parse_options
from sources.registry import open_log
from sources.rocketmq.log import RocketMQLog
from tests.sources.rocketmq.damaged_logs import damage, offsets
from tests.sources.rocketmq.embedded.embedded import running_master, settings_for
from tests.sources.rocketmq.log_reading import ALL, LOG_ID, over_ha, owned, pieces, truth_between
from tests.sources.rocketmq.scripted_master import holding, serve_log
from tests.truth import Fixture

FILE_BYTES = 1024 * 1024  # of the fixtures' logs


@contextmanager
def embedded(store: Path, fixture: Fixture, **options: object) -> Iterator[tuple[RocketMQLog, Path]]:
    """The log of an embedded master on a copy of the fixture's files; and where those are."""
    shutil.copytree(fixture.commitlog_path, store / "commitlog")
    with running_master(settings_for(store)) as master:
        given = {"remoting": master.address, "master": master.ha_address, "chunk_bytes": 300_000} | options
        yield RocketMQLog(log_id=LOG_ID, **given), store / "commitlog"  # type: ignore[arg-type]


def flip(commitlog: Path, offset: int) -> None:
    """One byte of a file is another one, behind the back of whoever has it open."""
    start = offset // FILE_BYTES * FILE_BYTES
    with (commitlog / f"{start:020d}").open("r+b") as file:
        file.seek(offset - start)
        (byte,) = file.read(1)
        file.seek(offset - start)
        file.write(bytes([byte ^ 0x55]))


def test_damage_on_a_master_over_ha(fixture_550: Fixture, tmp_path: Path) -> None:
    """A byte of a body, of a size, and of the blank that ends the first file."""
    rows = fixture_550.rows
    blank = next(number for number, row in enumerate(rows) if row.get("blank"))
    places = {40: 88, 41: 2, 90: 2, blank: 3, len(rows) - 2: 35}
    spoiled = [rows[number]["physical_offset"] for number in places]
    end = fixture_550.max_offset
    with embedded(tmp_path, fixture_550, past_damage=True) as (log, commitlog):
        for number, at in places.items():
            flip(commitlog, rows[number]["physical_offset"] + at)
        assert log.bounds() == owned(0, end)
        whole = pieces(log, 0, end, committed=None)
        parallel = RocketMQLog(
            log_id=LOG_ID,
            remoting=log.remoting,
            master=log.master,
            past_damage=True,
            parallel_reads=True,
            split_bytes=150_000,
        )
        cuts = parallel.plan(owned(0, end))
        assert len(cuts) > 20
        parts = [pieces(parallel, cut.start, cut.end, boundary=not cut.start) for cut in cuts]
        bytes_there = b"".join(file.read_bytes() for file in sorted(commitlog.iterdir()))[:end]

    for found in (whole, list(itertools.chain(*parts))):
        assert offsets(found) == [at for at in truth_between(fixture_550, 0, ALL) if at not in spoiled]
        expected = [(at, at + rows[number]["size"]) for number, at in zip(places, spoiled, strict=True)]
        assert damage(found) == [(expected[0][0], expected[1][1]), *expected[2:]]
        assert b"".join(bytes(piece.raw or b"") for piece in found) == bytes_there
    errors = {piece.error.offset: piece.error for piece in whole if isinstance(piece, Damage)}
    assert list(errors) == spoiled
    assert isinstance(errors[spoiled[0]], ChecksumMismatch)
    assert {error.log for error in errors.values()} == {"rocketmq/broker-a"}


@pytest.mark.parametrize("on_loss", ["fail", "record"])
def test_the_operators_word_decides(tmp_path: Path, on_loss: str) -> None:
    options = {"id": "rocketmq/broker-a", "path": str(tmp_path), "on_loss": on_loss}
    log = open_log(parse_options(MasterOptions, options, where="test"))
    assert isinstance(log, RocketMQLog)
    assert log.past_damage == (on_loss == "record")


def test_a_last_record_that_does_not_come_is_waited_for(fixture_550: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave as a master: its log may end inside a record, for a moment."""
    monkeypatch.setattr("sources.rocketmq.over_ha.SETTLE_S", 0.001)
    last = fixture_550.rows[-1]
    place, end = last["physical_offset"], last["physical_offset"] + last["size"]
    ends = iter([end - 5])
    script = serve_log(fixture_550.log)
    with over_ha((script,), lambda request: holding(0, next(ends, end))(request), past_damage=True) as (log, _):
        assert offsets(pieces(log, place, end - 5)) == [place]
    with over_ha((serve_log(fixture_550.log[: end - 5]),), holding(0, end - 5), past_damage=True) as (log, _):
        assert damage(pieces(log, place, end - 5)) == [(place, end - 5)]


EDGES = (0, 1, 12_345, FILE_BYTES - 3, FILE_BYTES + 3, 2_222_222)


def test_raw_bytes_of_files_and_of_a_master_are_the_same(fixture_550: Fixture, tmp_path: Path) -> None:
    by_path = RocketMQLog(log_id=LOG_ID, path=str(fixture_550.commitlog_path), chunk_bytes=100_000)
    edges = [*EDGES, fixture_550.max_offset]
    with embedded(tmp_path, fixture_550, parallel_reads=True) as (by_ha, _):
        for log in (by_path, by_ha):
            for start, end in itertools.combinations_with_replacement(edges, 2):
                found = log.raw(owned(start, end), committed=None)
                assert b"".join(map(bytes, found)) == fixture_550.log[start:end]


def test_raw_bytes_promise_no_more_than_is_committed(fixture_550: Fixture) -> None:
    with over_ha((serve_log(fixture_550.log),), holding(0, fixture_550.max_offset)) as (log, master):
        found = log.raw(owned(1001, 50_003), committed=Offset(60_000))
        assert b"".join(map(bytes, found)) == fixture_550.log[1001:50_003]
        assert set(master.reports) == {1001}
