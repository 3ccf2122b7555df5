"""What is written beside a warehouse, and who can read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.sql.output import destination
from pipeline.system.rights import limit_rights


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("warehouse", "file"), [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o770, 0o640), (0o701, 0o600)]
)
def test_a_file_has_no_more_rights_than_its_warehouse(tmp_path: Path, warehouse: int, file: int) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(warehouse)
    limit_rights(lake)
    result = tmp_path / "result.csv"
    with destination(result) as sink:
        sink.write(b"n\n")
    assert oct(result.stat().st_mode & 0o777) == oct(file)


def test_beside_an_object_store_files_are_their_owners(tmp_path: Path) -> None:
    limit_rights(None)
    (tmp_path / "state").touch()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_warehouse_that_is_not_there_yet_gets_what_all_files_get(tmp_path: Path) -> None:
    limit_rights(tmp_path / "lake")
    (tmp_path / "lake").mkdir()
    assert oct((tmp_path / "lake").stat().st_mode & 0o777) == oct(0o755)
