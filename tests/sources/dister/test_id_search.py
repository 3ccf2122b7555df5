"""Batch files: where they are, which there are; and finding an id in one without reading all of it."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister import log_walk
from sources.dister.layout import BatchFile, list_batches
from sources.dister.log_walk import BatchBytes, IdSearch
from sources.errors import ConfigurationError
from sources.offsets import Offset
from tests.sources.dister.entry_logs import set_line

LOOK_BACK_BYTES = 120  # some five lines


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_walk, "LOOK_BACK_BYTES", LOOK_BACK_BYTES)


def found(path: Path, lines: list[bytes], wanted: list[int]) -> tuple[list[bytes | None], int | None]:
    """The line of each id that is wanted, and the last entry's id."""
    path.write_bytes(b"".join(lines))
    with BatchBytes(BatchFile(0, path)) as file:
        search = IdSearch(file)
        asked = [search.find(one) for one in wanted]
        last = search.last_entry()
    return [None if line is None else line.text + b"\n" for line in asked], None if last is None else last.entry.id


def test_every_id_of_a_file_is_found_and_no_other(tmp_path: Path) -> None:
    lines = {number * 3: set_line(number * 3, value="x" * (number % 17)) for number in range(1, 501)}
    asked = [*lines, 1, 2, 4, 700, 1498, 9999]
    assert found(tmp_path / "0", list(lines.values()), asked) == ([*lines.values(), *[None] * 6], 1500)


def test_lines_that_are_longer_than_all_that_is_looked_at_and_broken_ones(tmp_path: Path) -> None:
    lines = [set_line(10, value="a" * 70_000), set_line(20), set_line(30, value="b" * 300_000), set_line(40)]
    assert found(tmp_path / "0", lines, [10, 20, 30, 40, 25]) == ([*lines, None], 40)
    assert found(tmp_path / "0", [*lines, b'50,300,{"torn":"' + b"c" * 90_000], [40]) == ([lines[3]], 40)
    lines = [*(set_line(number) for number in range(10, 90)), b'95,300,{"k":"v}\n', b'99,300,{"k":1}\n']
    assert found(tmp_path / "0", lines, [89, 95, 99]) == ([lines[79], None, None], 89)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_short_runs_of_expired_lines_never_lead_astray(seed: int, runs: int) -> None:
    """Each run repeats ids of the log, and is shorter than what is looked back over."""
    chosen = random.Random(seed)
    truth = [set_line(number * 2) for number in range(1, 150)]
    lines = list(truth)
    for _ in range(runs):
        behind, begin = chosen.randrange(50, len(lines)), chosen.randrange(0, 40)
        lines[behind:behind] = truth[begin : begin + chosen.randrange(1, 4)]
    data = b"".join(lines)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "0")
        path.write_bytes(data)
        with BatchBytes(BatchFile(0, path)) as file:
            search = IdSearch(file)
            asked = {number: search.find(number * 2) for number in chosen.sample(range(1, 150), 30)}
            last = search.last_entry()

    assert all(line is None or line.at == data.index(truth[number - 1]) for number, line in asked.items())
    assert last is not None
    assert last.entry.id == 298


@pytest.mark.parametrize(("length", "back", "value"), [(2, 3, ""), (2, 3, "x" * 400), (25, 500, "")])
def test_a_run_that_halving_falls_into_is_noticed(tmp_path: Path, length: int, back: int, value: str) -> None:
    """By what is right before it, however long that is; or, where it hides enough, by what is far before it."""
    truth = [set_line(number * 2) for number in range(1, 2001)]
    path = tmp_path / "0"
    for behind in range(1000, 1260):
        run = truth[behind - back : behind - back + length]
        lines = [*truth[: behind - 1], set_line(behind * 2, value=value), *run, *truth[behind:]]
        path.write_bytes(b"".join(lines))
        with BatchBytes(BatchFile(0, path)) as file:
            line = IdSearch(file).find((behind - back + length) * 2)
        assert line is None or line.at == sum(map(len, lines[: behind - back + length - 1])), behind


def test_a_leader_that_began_again_with_low_ids(tmp_path: Path) -> None:
    """The whole log is behind in ids, far beyond what is looked back over, up to where it overtakes itself."""
    first = [set_line(number * 10_000 + 5) for number in range(1, 400)]
    for length in (1, 20, 398):
        again = [set_line(number * 10_000 + 7) for number in range(1, length + 1)]
        asked, last = found(tmp_path / "0", first + again, [number * 10_000 + 5 for number in range(1, 400)])
        assert all(one in (None, line) for one, line in zip(asked, first, strict=True))
        assert last == 3_990_005, length


def test_an_end_before_one_that_was_known_is_not_believed(tmp_path: Path) -> None:
    first = [set_line(number * 10_000 + 5) for number in range(1, 4000)]
    again = [set_line(number * 10_000 + 7, value="of another length") for number in range(1, 3999)]
    path = tmp_path / "0"
    path.write_bytes(b"".join(first + again))
    with BatchBytes(BatchFile(0, path)) as file:
        last = IdSearch(file).last_entry(Offset(3999 * 10_000 + 6))
    assert last is not None
    assert last.entry.id == 3999 * 10_000 + 5


def test_files_are_listed_by_number(tmp_path: Path) -> None:
    for path in ("0/0", "0/2", "0/10", "1/100", "1/101", "12/1234"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    listed = list_batches(tmp_path)
    assert [batch.number for batch in listed] == [0, 2, 10, 100, 101, 1234]
    assert listed[1] == BatchFile(2, tmp_path / "0" / "2")
    assert listed[1].first_id == 2_000_000_000


def test_what_is_named_otherwise_is_no_batch_file(tmp_path: Path) -> None:
    for path in ("0/1", "0/01", "0/x", "0/1.bak", "0/100", "00/3", "x/4", "5", "0/99999999999"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "0" / "7").mkdir()
    assert [batch.number for batch in list_batches(tmp_path)] == [1]


def test_a_folder_that_is_none_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        list_batches(tmp_path / "log")
