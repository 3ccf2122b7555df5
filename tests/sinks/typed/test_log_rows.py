"""What the tasks of a step read of a log's data files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.delta_log import StoredFile
from sinks.tables import LOG
from sinks.typed.step.log_rows import LogRows, Share, shares
from sources.errors import ReplicaError
from sources.offsets import LogId, OffsetRange
from tests.around import at_each
from tests.spans import span

ONE, OTHER = LogId.parse("rocketmq/one"), LogId.parse("rocketmq/other")


def stored(path: str, least: int | None, greatest: int | None) -> StoredFile:
    bounds = {} if least is None else {"minValues": {"offset": least}, "maxValues": {"offset": greatest}}
    return StoredFile({"path": path, "size": 1, "stats": json.dumps({"numRecords": 1, **bounds})})


def written(folder: Path, name: str, places: list[tuple[LogId, int, str]], group: int = 2) -> None:
    """Records of a log, at an offset, of a topic; so many in a row group."""
    schema = LOG.schema.remove_metadata()
    given_: dict[str, list[Any]] = {
        "log_id": [str(one) for one, _, _ in places],
        "offset": [offset for _, offset, _ in places],
        "topic": [topic for _, _, topic in places],
        "body": [f"{log}@{offset}".encode() for log, offset, _ in places],
        "keys": [["a", "b"]] * len(places),
        "flag": [7] * len(places),
    }
    columns = [pa.array(given_.get(one.name, [None] * len(places)), one.type) for one in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), folder / name, row_group_size=group)


def read(folder: Path, share: Share) -> list[dict[str, Any]]:
    reading = LogRows(LOG, str(folder), ("orders",))
    return [row for batch in reading(share, ("body",)) for row in batch.to_pylist()]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=3),
    st.integers(1, 7),
)
def test_shares_are_the_ranges_once_and_alike(one: list[Any], other: list[Any], count: int) -> None:
    def apart(several: list[Any]) -> list[OffsetRange]:
        """In ranges of their own, so that none overlaps another."""
        return [span(at * 100 + start, at * 100 + start + size) for at, (start, size) in enumerate(several)]

    ranges = {log_id: apart(several) for log_id, several in ((ONE, one), (OTHER, other)) if several}
    found = shares({log_id: [stored(f"{log_id}", None, None)] for log_id in ranges}, ranges, count)
    sizes = [sum(part.size for parts in share.ranges.values() for part in parts) for share in found]
    assert len(found) <= count
    assert max(sizes) - min(sizes[:-1], default=max(sizes)) == 0
    for log_id, several in ranges.items():
        wanted = [offset for part in several for offset in range(part.start, part.end)]
        parts = [part for share in found for part in share.ranges.get(str(log_id), ())]
        assert [offset for part in parts for offset in range(part.start, part.end)] == wanted


def test_a_share_has_the_files_that_may_have_its_rows() -> None:
    files = {ONE: [stored("a", 0, 9), stored("b", 10, 19), stored("c", None, None)], OTHER: [stored("b", 10, 19)]}
    found = shares(files, {ONE: [span(0, 10), span(15, 20)], OTHER: [span(0, 5)]}, 2)
    assert [one.files for one in found] == [("a", "c"), ("b", "c")]
    assert [dict(one.ranges) for one in found] == [
        {str(ONE): (span(0, 10),)},
        {str(ONE): (span(15, 20),), str(OTHER): (span(0, 5),)},
    ]


def test_rows_of_the_share_alone_are_read_of_the_row_groups_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    at_each(monkeypatch, pq.ParquetFile, "iter_batches", lambda *_, row_groups, **__: groups.extend(row_groups))
    written(tmp_path, "a", [(ONE, offset, "orders") for offset in range(8)] + [(OTHER, 3, "orders")])
    written(tmp_path, "b", [(ONE, 8, "orders"), (ONE, 9, "payments"), (OTHER, 4, "orders")])
    share = Share(("a", "b"), {str(ONE): (span(1, 2), span(5, 20)), str(OTHER): (span(4, 9),)})
    found = read(tmp_path, share)
    assert [(row["log_id"], row["offset"]) for row in found] == [
        *((str(ONE), offset) for offset in (1, 5, 6, 7, 8)),
        (str(OTHER), 4),
    ]
    assert [row["body"] for row in found] == [f"{row['log_id']}@{row['offset']}".encode() for row in found]
    assert all(row["keys"] is None and row["flag"] is None and row["topic"] == "orders" for row in found)
    assert groups == [0, 2, 3, 0, 1]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PAR1 no parquet PAR1")
    share = Share(("a",), {str(ONE): (span(5, 6),)})
    with pytest.raises(ReplicaError, match=r"rocketmq/one.*offset 5.*/a, which the Delta log names"):
        read(tmp_path, share)
