"""What a batch reads, from the file that Spark writes; `tests/sources/test_group.py` reads Spark's own."""

import errno
import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipeline.job.stream import offset_in
from sinks.storage.errors import passes
from sources.errors import LogtwinError, StorageUnreachable
from sources.group.offsets import GroupOffset
from tests.spans import span

BATCH = GroupOffset(8, {"rocketmq/a": span(3, 9)}, {"rocketmq/b": LogtwinError("two\nlines, and \u2028 another")})
METADATA = '{"batchWatermarkMs":0,"conf":{"one":"\u2028"}}'


def write(folder: Path, text: str) -> None:
    (folder / "offsets").mkdir()
    (folder / "offsets" / "7").write_text(text)


def test_the_offset_is_that_of_the_batch(tmp_path: Path) -> None:
    write(tmp_path, f"v1\n{METADATA}\n{json.dumps(BATCH.to_json())}")
    assert GroupOffset.from_json(offset_in(tmp_path, 7)).to_json() == BATCH.to_json()


@pytest.mark.parametrize(
    "text", ["", "v1", f"v2\n{METADATA}\n{{}}", f"v1\n{METADATA}\n{{}}\n{{}}", f"v1\n{METADATA}\n{{"]
)
def test_another_file_says_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(LogtwinError, match="offset log does not say") as caught:
        offset_in(tmp_path, 7)
    assert str(tmp_path / "offsets" / "7") in str(caught.value)


def test_a_file_that_cannot_be_opened_for_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.EMFILE, "Too many open files")
    assert passes(full)
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=full))
    with pytest.raises(StorageUnreachable):
        offset_in(tmp_path, 7)
