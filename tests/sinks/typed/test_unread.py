"""Messages that a step must not read become dead letters, and a look at messages says where they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.typed.definition import Definition
from sinks.typed.step.parsing import MESSAGES, OfStep, Parsing, Unread
from sinks.typed.step.report import Report, reports

LOG = "rocketmq/a"


def batch(*places: tuple[int, int | None]) -> pa.RecordBatch:
    """A message at each offset and index, which says where it is."""
    rows = [
        {"log_id": LOG, "offset": offset, "batch_index": index, "stored_at": 0, "body": b'{"at":"%d"}' % offset}
        for offset, index in places
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGES)


BATCHES = [batch((3, None), (7, 0), (7, 1)), batch((7, 2), (7, 3), (9, None))]


def told(folder: Path, of_step: OfStep) -> Report:
    parsing = Parsing(Definition(name="orders"), str(folder), str(folder))
    rows = [row for one in parsing(BATCHES, of_step) for row in one.to_pylist()]
    return reports(rows)


def places(folder: Path, names: list[str]) -> list[tuple[int, int | None]]:
    rows = [row for name in names for row in pq.ParquetFile(folder / name).read().to_pylist()]
    return [(row["offset"], row["batch_index"]) for row in rows]


def test_a_record_that_is_not_read_is_a_dead_letter_whole_or_in_part(tmp_path: Path) -> None:
    for number, (read, left_out) in enumerate({(): (0, 1, 2, 3), ((0, 4),): (), ((1, 2), (3, 4)): (0, 2)}.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        report = told(folder, OfStep(epochs={LOG: 0}, unread=Unread(LOG, 7, read, "3 times: crashed")))
        unfit = places(folder, [one.name for one in report.unfit])
        rows = places(folder, [one.name for one in report.files])
        assert unfit == [(7, index) for index in left_out]
        assert rows == [(3, None), *((7, index) for index in range(4) if index not in left_out), (9, None)]
        assert report.messages == 6
        if left_out:
            assert report.first_unfit is not None
            place, column, found = report.first_unfit
            assert (place.offset, place.index, column) == (7, left_out[0], "")
            assert found == "worker_died: 3 times: crashed"


def test_another_log_has_the_same_offsets(tmp_path: Path) -> None:
    report = told(tmp_path, OfStep(epochs={LOG: 0}, unread=Unread("rocketmq/b", 7, (), "")))
    assert (report.rows, report.unfit) == (6, ())


def test_a_look_says_where_the_messages_are_and_writes_nothing(tmp_path: Path) -> None:
    report = told(tmp_path, OfStep(only_looks=True))
    assert (report.messages, report.rows, report.held) == (6, 0, ((LOG, 3, 9, 3),))
    assert list(tmp_path.iterdir()) == []
