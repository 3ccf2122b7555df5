"""A dister log as a master log."""

import json
import logging
import pickle
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sources.bounds import ToldDoubt
from sources.dister import columns, line_walk
from sources.dister.log import DisterLog
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ConfigurationError,
    CorruptRecord,
    MasterSilent,
    MasterUnreachable,
    MissingSegment,
    OutOfMemory,
)
from sources.master import MasterView
from sources.offsets import Offset
from sources.options import MasterOptions
from sources.registry import open_log
from sources.sole_log import SilentSession
from tests.log_lines import said_by
from tests.sources.dister.entry_logs import LOG_ID, ids, leader, log_of, owned, pieces, raw, set_line, write

ONE, TWO, THREE = set_line(10_007), set_line(20_001), set_line(30_005)


def test_a_log_that_is_empty_for_a_moment_is_being_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is overruled removes its file first: that is no empty leader."""
    (tmp_path / "dister.entry.log").mkdir()
    waits: list[float] = []

    def rewritten_meanwhile(seconds: float) -> None:
        waits.append(seconds)
        leader(tmp_path, ONE)

    monkeypatch.setattr(time, "sleep", rewritten_meanwhile)
    assert log_of(tmp_path).bounds() == owned(0, 10_008)
    assert len(waits) == 1


def test_a_folder_that_is_not_there_is_a_wrong_path(tmp_path: Path) -> None:
    """DI-01."""
    with pytest.raises(ConfigurationError, match="leader's folder") as raised:
        log_of(tmp_path / "none").bounds()
    assert raised.value.log == "dister/g"


def test_entries_with_ids_that_the_log_is_above_are_expired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """DI-35."""
    log = leader(tmp_path, ONE, TWO, ONE, set_line(15_000), TWO, THREE, set_line(25_000))
    with caplog.at_level(logging.WARNING):
        assert log.bounds() == owned(0, 30_006)
        assert ids(log, 0, 30_006) == [10_007, 20_001, 30_005]
    assert raw(log, 0, 30_006) == ONE + TWO + THREE
    assert ids(log, 10_008, 30_006) == [20_001, 30_005]
    assert "3 entries below 30006 are expired" in caplog.text


def test_an_id_that_stands_twice_and_says_something_else_is_corrupt(tmp_path: Path) -> None:
    other = set_line(10_007, value="other")
    lines = (ONE, TWO, other, THREE)
    with pytest.raises(CorruptRecord, match=r"0/0, line 3, byte \d+: the id 10007 stands here again") as raised:
        pieces(leader(tmp_path, *lines), 0, 30_006)
    assert raised.value.offset == 20_002
    assert raised.value.expected == repr(ONE[:-1])[1:]
    assert raised.value.found == repr(other[:-1])[1:]
    assert pieces(log_of(tmp_path, past_damage=True), 10_008, 30_006) == [
        ("entry", 10_008, 20_002, TWO),
        ("damage", 20_002, 30_005, other),
        ("entry", 30_005, 30_006, THREE),
    ]


@pytest.mark.parametrize("bad", [b'{"k":1}', b'{"k":null}', b'["k"]', b'"k"', b'{"k":{"a":"b"}}'])
def test_items_that_are_no_strings_are_damage(tmp_path: Path, bad: bytes) -> None:
    """DI-46."""
    broken = b"20001,300," + bad + b"\n"
    log = leader(tmp_path, ONE, broken, THREE)
    with pytest.raises(CorruptRecord, match=f"{tmp_path}.*0/0, line 2, byte {len(ONE)}: ") as raised:
        pieces(log, 0, 30_006)
    assert (raised.value.log, raised.value.offset) == ("dister/g", 10_008)
    assert raised.value.hint is not None
    assert pieces(log_of(tmp_path, past_damage=True), 0, 30_006) == [
        ("entry", 0, 10_008, ONE),
        ("damage", 10_008, 20_002, broken),
        ("entry", 20_002, 30_006, THREE),
    ]


def test_a_torn_line_glued_to_the_next_is_damage_once_an_entry_follows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Torn inside of its id it makes a longer number, which nothing tells from an id."""
    for length in range(len(b"20001"), len(TWO)):
        glued, folder = TWO[:length] + THREE, tmp_path / str(length)
        leader(folder, ONE, glued)
        for past_damage in (False, True):
            caplog.clear()
            log = log_of(folder, past_damage=past_damage)
            assert log.bounds() == log.bounds() == owned(0, 10_008)
            (warning,) = said_by(ToldDoubt.__module__, caplog)  # it is told once
            assert "the log ends at 10008" in warning
            assert "line 2" in warning

        log = leader(folder, ONE, glued, set_line(40_001))
        with pytest.raises(CorruptRecord, match="line 2"):
            pieces(log, 10_008, 40_002)
        (damage, entry) = pieces(log_of(folder, past_damage=True), 10_008, 40_002)
        assert (damage[0], damage[1], damage[3]) == ("damage", 10_008, glued)
        assert entry == ("entry", damage[2], 40_002, set_line(40_001))


@pytest.mark.parametrize("number", [2, 3])
def test_a_file_that_is_missing_is_no_end_of_the_log(tmp_path: Path, number: int) -> None:
    later, end = set_line(number * 10**9 + 7), number * 10**9 + 8
    log = log_of(write(tmp_path, {0: ONE, number: later}))

    assert log.bounds() == owned(0, end)
    assert pieces(log, 0, 10_008) == [("entry", 0, 10_008, ONE)]
    with pytest.raises(MissingSegment, match="0/1 is missing"):
        pieces(log, 10_008, end)
    recording = log_of(tmp_path, past_damage=True)
    assert recording.bounds() == owned(0, end)
    assert pieces(recording, 0, end) == [
        ("entry", 0, 10_008, ONE),
        ("damage", 10_008, end - 1, None),
        ("entry", end - 1, end, later),
    ]
    assert raw(recording, 0, 10_008) == ONE
    with pytest.raises(MissingSegment):
        raw(recording, 0, 20_000)


def test_a_file_that_a_leader_is_writing_anew_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = set_line(2_000_000_007)
    log = log_of(write(tmp_path, {0: ONE, 2: later}))
    monkeypatch.setattr(time, "sleep", lambda seconds: write(tmp_path, {1: set_line(1_000_000_007)}))
    assert ids(log, 0, 2_000_000_008) == [10_007, 1_000_000_007, 2_000_000_007]


def test_a_file_that_goes_or_shrinks_meanwhile_is_asked_for_again(tmp_path: Path) -> None:
    log = leader(
        tmp_path, *(set_line(number * 10_000, value="v" * 90) for number in range(1, 20_000)), chunk_bytes=1000
    )
    reading = log.read(owned(0, 199_990_001), committed=None, boundary=True)
    next(reading)
    (tmp_path / "dister.entry.log" / "0" / "0").write_bytes(ONE)
    with pytest.raises(MasterSilent, match="lost bytes") as raised:
        list(reading)
    assert raised.value.log == "dister/g"
    assert raised.value.is_transient
    (tmp_path / "dister.entry.log" / "0" / "0").unlink()
    assert log.bounds() == owned(0, 0)


def test_what_the_leader_does_not_hold_cannot_be_read(tmp_path: Path) -> None:
    log = leader(tmp_path, ONE, TWO)
    later = log_of(write(tmp_path / "later", {2: set_line(2_000_000_007)}))
    assert later.bounds() == owned(2_000_000_000, 2_000_000_008)
    with pytest.raises(BelowMinimum):
        pieces(later, 1_999_999_999, 2_000_000_008)
    for start, end in ((0, 20_003), (20_002, 30_000), (25_000, 30_000)):
        with pytest.raises(AboveMaximum):
            pieces(log, start, end)
        with pytest.raises(AboveMaximum):
            raw(log, start, end)


@pytest.mark.parametrize("past_damage", [False, True])
@pytest.mark.parametrize("start", [1, 10_007, 10_009, 20_001])
def test_reading_begins_behind_an_entry(tmp_path: Path, start: int, past_damage: bool) -> None:
    log = leader(tmp_path, ONE, TWO, THREE, past_damage=past_damage)
    with pytest.raises(CorruptRecord, match="no entry that ends where reading is to begin") as raised:
        pieces(log, start, 30_006)
    assert raised.value.offset == start
    assert raised.value.expected == f"an entry with id {start - 1}"


def test_damage_is_cut_to_the_range_and_its_beginning_has_the_bytes(tmp_path: Path) -> None:
    broken = b"no entry at all\n"
    log = leader(tmp_path, ONE, broken, THREE, past_damage=True)
    assert pieces(log, 0, 15_000)[1:] == [("damage", 10_008, 15_000, broken)]
    assert pieces(log, 15_000, 30_006) == [("damage", 15_000, 30_005, None), ("entry", 30_005, 30_006, THREE)]


def test_damage_between_ids_that_follow_one_another_stops_the_log(tmp_path: Path) -> None:
    log = leader(tmp_path, set_line(19_999), b"no entry at all\n", set_line(20_000), past_damage=True)
    assert pieces(log, 0, 20_000) == [("entry", 0, 20_000, set_line(19_999))]
    for start in (0, 20_000):
        with pytest.raises(CorruptRecord, match="follow one another") as raised:
            pieces(log, start, 20_001)
        assert raised.value.offset == 20_000


@pytest.mark.parametrize("chunk_bytes", [1, len(ONE) + 1, 10**6])
def test_chunks_have_about_the_size_that_is_asked_for(tmp_path: Path, chunk_bytes: int) -> None:
    lines = [set_line(number * 10_000) for number in range(1, 100)]
    log = leader(tmp_path, *lines, chunk_bytes=chunk_bytes)
    sizes = [len(piece.raw or b"") for piece in log.read(owned(0, 990_001), committed=None, boundary=True)]
    parts = [len(piece) for piece in log.raw(owned(0, 990_001), committed=None)]
    assert sizes == parts
    assert sum(sizes) == len(b"".join(lines))
    assert all(chunk_bytes <= size < chunk_bytes + 2 * len(lines[-1]) for size in sizes[:-1])
    assert pieces(log, 0, 990_001) == pieces(log_of(tmp_path), 0, 990_001)


def test_a_batch_has_so_many_entries_at_most(tmp_path: Path) -> None:
    lines = [set_line(number * 10_000) for number in range(1, 26)]
    log = leader(tmp_path, *lines, max_entries_per_trigger=10)
    end = log.bounds().end
    assert log.end_of_batch(Offset(0), end, 10**6) == 100_001
    assert log.end_of_batch(Offset(0), Offset(50_001), 10**6) == 50_001
    assert log.end_of_batch(Offset(0), end, 2 * len(lines[0])) == 20_001
    assert log.end_of_batch(Offset(0), end, 1) == 10_001
    assert log.end_of_batch(end, end, 1) == end


def test_a_leader_that_wrote_its_log_anew_while_it_is_read(tmp_path: Path) -> None:
    lines = [set_line(number * 10_000) for number in range(1, 200)]
    log = leader(tmp_path, *lines, chunk_bytes=1)
    reading = log.read(owned(0, 1_990_001), committed=None, boundary=True)
    first = next(reading)
    path = tmp_path / "dister.entry.log" / "0" / "0"
    path.unlink()
    path.write_bytes(ONE)
    rest = list(reading)
    assert b"".join(bytes(piece.raw or b"") for piece in [first, *rest]) == b"".join(lines)
    assert log.bounds(Offset(1_990_001)) == owned(0, 10_008)
    with pytest.raises(AboveMaximum):
        next(log.read(owned(0, 1_990_001), committed=None, boundary=True))


def test_a_log_travels_to_the_tasks(tmp_path: Path) -> None:
    log: DisterLog = pickle.loads(pickle.dumps(leader(tmp_path, ONE, peers="nodes.json")))  # noqa: S301
    assert log == log_of(tmp_path, peers="nodes.json")
    assert (log.traits.cuts_at_records, log.traits.cuts_batches, log.plan(owned(0, 9))) == (True, False, (owned(0, 9),))
    assert pieces(log, 0, 10_008) == [("entry", 0, 10_008, ONE)]


def test_nobody_there_takes_a_promise(tmp_path: Path) -> None:
    log = leader(tmp_path, ONE)
    with closing(log.open_session()) as session:
        assert isinstance(session, SilentSession)
    assert log.acknowledged_by_master() == {}
    assert log.view() == MasterView(role="leader", bounds=owned(0, 10_008), retention=None)
    assert (log.address, log.role) == (str(tmp_path), "reader")
    assert log.traits.proves_all


def node(**other: object) -> dict[str, object]:
    return {
        "name": "n", "group": "g", "id": "A1", "ip": "10.0.0.1", "status": 1, "role": 0, "raft": 2, "logid": 10_007,
        "serviceid": 0, "version": "1.6", **other,
    }  # fmt: skip


@pytest.mark.parametrize("other", [{"group": "h"}, {"version": "1.5"}])
def test_a_leader_of_another_group_or_version_is_refused(tmp_path: Path, other: dict[str, str]) -> None:
    """DI-02, DI-03."""
    peers = tmp_path / "nodes.json"
    peers.write_text(json.dumps([node(**other)]))
    with pytest.raises(ConfigurationError) as raised:
        log_of(tmp_path, peers=str(peers)).check()
    assert raised.value.log == "dister/g"
    assert next(iter(other.values())) in str(raised.value.found)


def test_the_list_in_the_folder_itself_is_heeded(tmp_path: Path) -> None:
    """DI-02: an embedded leader's, where no other list is given."""
    (tmp_path / "dister.peers.json").write_text(json.dumps([node(group="h")]))
    with pytest.raises(ConfigurationError, match="group"):
        log_of(tmp_path).check()
    peers = tmp_path / "nodes.json"
    peers.write_text(json.dumps([node()]))
    log_of(tmp_path, peers=str(peers)).check()


def test_without_a_list_of_nodes_nothing_is_checked_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_of(tmp_path).check()
    assert "without peers nothing tells" in caplog.text
    with pytest.raises(MasterUnreachable):
        log_of(tmp_path, peers=str(tmp_path / "none.json")).check()


def test_an_operators_options_open_it(tmp_path: Path) -> None:
    options = MasterOptions(
        id=str(LOG_ID),
        path=str(tmp_path),
        peers="nodes.json",
        max_entries_per_trigger=7,
        chunk_bytes=8,
        on_loss="record",
    )

    assert open_log(options) == log_of(
        tmp_path, peers="nodes.json", max_entries_per_trigger=7, chunk_bytes=8, past_damage=True
    )
    assert (options.check_and_fix, MasterOptions(id="dister/g").max_entries_per_trigger) == ("safe", 10_000)
    copy = options.by_path("/copy")
    assert (copy.path, copy.peers) == ("/copy", None)


@pytest.mark.parametrize("options", [{}, {"path": "/l", "remoting": "h:1"}, {"name_server": "h:1"}])
def test_there_is_one_way_to_it(options: dict[str, str]) -> None:
    """DI-01."""
    with pytest.raises(ConfigurationError, match="leader's folder"):
        open_log(MasterOptions(id="dister/g", **options))


# an entry that its decoder fails over, though nothing that is thought of is wrong with it


LINES = [set_line(10 * number, f"k{number}") for number in range(1, 7)]
Break = Callable[[pytest.MonkeyPatch], None]


def in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_of = line_walk.entry_of

    def failing(line: Any) -> Any:
        if line.text.startswith(b"30,"):
            raise RecursionError
        return entry_of(line)

    monkeypatch.setattr(line_walk, "entry_of", failing)


def in_the_columns(monkeypatch: pytest.MonkeyPatch, error: type[Exception] = OverflowError) -> None:
    encode = columns.encode

    def failing(group: Any) -> Any:
        if any(piece.entry.id == 30 for piece in group):
            raise error("cannot allocate")
        return encode(group)

    monkeypatch.setattr(columns, "encode", failing)


@pytest.mark.parametrize("broken", [in_the_line, in_the_columns])
def test_it_is_damage_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: Break) -> None:
    log = leader(tmp_path, *LINES, past_damage=True)
    whole = pieces(log, 0, 61)
    broken(monkeypatch)
    expected = [("damage", *one[1:]) if one[2] == 31 else one for one in whole]
    assert pieces(log, 0, 61) == expected


def test_a_lack_of_memory_for_one_entry_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_the_columns(monkeypatch, MemoryError)
    with pytest.raises(OutOfMemory, match="cannot allocate") as raised:
        pieces(leader(tmp_path, *LINES, past_damage=True), 0, 61)
    assert (raised.value.log, raised.value.offset) == ("dister/g", 21)
