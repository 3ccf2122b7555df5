"""The folder of a topic's partitions: names, sizes, where logs begin and end; and that it is there whole or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sources.kafka.format.batch_encoding import MAX_DELTA
from sources.kafka.rebuilt_partitions import OWN, RebuiltPartition, folder_name
from sources.offsets import LogId, Offset
from sources.rebuilt_folder import RebuiltFolder
from tests.sources.kafka.batches import Row, decoded, rows_of
from tests.sources.kafka.test_batch_encoding import records, row

ORDERS = LogId.parse("kafka/prod/orders.eu-1/0")


def rebuilt(
    to: Path, rows: Sequence[Row], first: int, end: int, epoch: int | None = 0, size_bytes: int = 1 << 30
) -> dict[str, bytes]:
    """The files of a log of one partition, by their offsets."""
    with RebuiltFolder(to, OWN) as folder:
        files = RebuiltPartition(folder, ORDERS, Offset(first), size_bytes, with_epochs=True)
        for one in rows:
            files.write(records([one]))
        files.finish(Offset(end), epoch)
        folder.finish()
    assert [path.name for path in to.iterdir()] == ["orders.eu-1-0"]
    found = {path.stem: path.read_bytes() for path in sorted((to / "orders.eu-1-0").iterdir())}
    assert len(found) == files.files
    return found


def read_back(files: dict[str, bytes]) -> tuple[list[Row], int, int | None]:
    """All records, where the last batch ends, and its epoch."""
    found = decoded(b"".join(files.values()))
    return rows_of(found.records), found.reached, found.epoch


def test_folders_are_named_as_brokers_name_them() -> None:
    assert (folder_name(ORDERS), folder_name(LogId.parse("kafka/prod/payments/12"))) == ("orders.eu-1-0", "payments-12")
    assert all(OWN.fullmatch(name) for name in ("orders.eu-1-0", f"payments-12/{5:020d}.log"))
    assert not any(OWN.fullmatch(name) for name in ("notes.txt", "payments-12/notes.txt", "payments-12/x-1"))


def test_files_are_full_and_begin_with_a_batch(tmp_path: Path) -> None:
    rows = [row(offset, value=bytes(1000)) for offset in range(10, 40, 3)]
    files = rebuilt(tmp_path / "to", rows, 10, 38, size_bytes=2500)
    assert list(files) == [f"{offset:020d}" for offset in (10, 16, 22, 28, 34)]
    assert all(2000 < len(data) <= 2500 for data in files.values())
    assert [rows_of(decoded(data).records)[0]["offset"] for data in files.values()] == [10, 16, 22, 28, 34]
    assert read_back(files) == (rows, 38, 0)


def test_a_batch_that_is_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    files = rebuilt(tmp_path / "to", [row(0), row(1, value=bytes(5000)), row(2)], 0, 3, size_bytes=1000)
    assert list(files) == [f"{offset:020d}" for offset in range(3)]


@pytest.mark.parametrize(("mark", "epoch"), [(None, 3), (2, 3), (3, 3), (7, 7)])
def test_an_empty_batch_leads_over_a_hole_to_the_end(tmp_path: Path, mark: int | None, epoch: int) -> None:
    """Epochs never go back: of the log's and the position's the later one counts."""
    rows = [row(5, leader_epoch=3)]
    assert read_back(rebuilt(tmp_path / "to", rows, 0, 900, mark)) == (rows, 900, epoch)


def test_epochs_are_left_out_unless_they_are_wanted(tmp_path: Path) -> None:
    with RebuiltFolder(tmp_path / "to", OWN) as folder:
        files = RebuiltPartition(folder, ORDERS, Offset(0), 1 << 30)
        files.write(records([row(0, leader_epoch=3), row(1, leader_epoch=7)]))
        files.finish(Offset(5), 9)
        folder.finish()
    assert files.last_epoch is None
    (file,) = (tmp_path / "to").glob("*/*")
    assert read_back({"": file.read_bytes()}) == ([row(0, leader_epoch=None), row(1, leader_epoch=None)], 5, None)


def test_a_log_without_a_record_ends_where_it_should(tmp_path: Path) -> None:
    assert rebuilt(tmp_path / "new", [], 40, 40) == {f"{40:020d}": b""}
    files = rebuilt(tmp_path / "aborted", [], 40, 60, 1)
    assert (list(files), read_back(files)) == ([f"{40:020d}"], ([], 60, 1))


def test_offsets_that_are_too_far_for_one_file(tmp_path: Path) -> None:
    """In its index an offset counts from the file's own, in 32 bits."""
    far = MAX_DELTA + 1
    rows = [row(0), row(MAX_DELTA), row(far), row(5 * far)]
    files = rebuilt(tmp_path / "to", rows, 0, 9 * far)
    assert list(files) == [f"{offset:020d}" for offset in (0, far, 5 * far, 9 * far - MAX_DELTA)]
    assert read_back(files) == (rows, 9 * far, 0)
