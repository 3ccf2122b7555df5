"""Which files of a Delta log may go."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sinks.upkeep.log_entries import LogEntry, LogFolder, expired

BEGAN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def entry(name: str, minute: int) -> LogEntry:
    return LogEntry(name, 100, BEGAN + timedelta(minutes=minute))


def versions(first: int, last: int) -> list[LogEntry]:
    """A version a minute, with all that logtwin's commits leave on a local disk."""
    found = []
    for version in range(first, last):
        names = [f"{version:020d}.json", f"{version:020d}.crc"]
        if version and version % 5 == 0:
            names.append(f"{version:020d}.checkpoint.parquet")
        found += [entry(name, version) for one in names for name in (one, f".{one}.crc")]
    return found


def gone_at(minute: float, entries: list[LogEntry], broken: Collection[int] = ()) -> list[LogEntry]:
    return expired(entries, BEGAN + timedelta(minutes=minute), lambda checkpoint: checkpoint.version not in broken)


def of(entries: list[LogEntry], kind: str) -> list[int | None]:
    """Of which versions `entries` has this kind of file, in their order."""
    return [one.version for one in entries if one.name.endswith(kind)]


def test_a_whole_history_stays_from_the_newest_old_checkpoint_on() -> None:
    everything = versions(0, 20)
    gone = gone_at(13, everything)
    left = [one for one in everything if one not in gone]
    assert of(left, "checkpoint.parquet") == [10, 15]  # a reader as of minute 13 begins at checkpoint 10
    assert of(left, ".json") == list(range(10, 20))
    # the oldest go first, with all that is of them
    assert [one.version for one in gone] == sorted(one.version or 0 for one in gone)
    assert of(gone, ".json") == of(gone, ".json.crc") == list(range(10))
    assert of(gone, "checkpoint.parquet") == of(gone, "checkpoint.parquet.crc") == [5]


def test_checksums_below_the_newest_checkpoint_go_whatever_their_age() -> None:
    """Also those whose commits Kernel's own clean-up has taken."""
    left = [one for one in versions(0, 20) if (one.version or 0) >= 10 or ".json" not in one.name]
    gone = gone_at(-100, left)
    assert {one.version for one in gone} == set(range(15))
    assert len(gone) == 15 * 2
    assert not of(gone, ".json") + of(gone, "checkpoint.parquet")


def test_without_an_old_checkpoint_all_stay() -> None:
    assert gone_at(100, versions(0, 5)) == []
    assert not of(gone_at(5, versions(0, 20)), ".json")  # the checkpoint of minute 5 is not older than that


def test_a_checkpoint_that_is_none_is_no_floor() -> None:
    gone = gone_at(13, versions(0, 20), broken=[10])
    assert of(gone, ".json") == list(range(5))
    assert {one.version for one in gone if one.name.endswith(".crc") and ".json" not in one.name} >= set(range(15))
    assert gone_at(13, versions(0, 20), broken=[5, 10, 15]) == []


def test_what_belongs_to_no_version_stays() -> None:
    others = [entry(name, 0) for name in ("_last_checkpoint", "._last_checkpoint.crc", "notes.txt", "1.json")]
    others += [entry(f"{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet", 0)]
    others += [
        entry(f"{12:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{end}", 0) for end in ("json", "parquet")
    ]
    assert not {one.name for one in others} & {one.name for one in gone_at(19, versions(0, 20) + others)}


def commits(folder: Path, versions: int) -> list[Path]:
    """A table of so many versions, by delta-rs, with a checkpoint of each but the first; the checkpoints."""
    for number in range(versions):
        write_deltalake(folder, pa.table({"n": [number]}), mode="append")
        if number:
            DeltaTable(folder).create_checkpoint()
    return sorted((folder / "_delta_log").glob("*.checkpoint.parquet"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda good, earlier, foreign: b"",
        lambda good, earlier, foreign: good[: len(good) // 2],
        lambda good, earlier, foreign: bytes(len(good) // 2) + good[len(good) // 2 :],
        lambda good, earlier, foreign: earlier,
        lambda good, earlier, foreign: foreign,
        lambda good, earlier, foreign: b"PAR1" + bytes(1000) + b"PAR1",
    ],
    ids=["empty", "cut", "pages lost", "of an earlier version", "of another table", "no Parquet"],
)
def test_what_is_no_checkpoint_costs_nobody_the_history(tmp_path: Path, spoil: Callable[..., bytes]) -> None:
    paths, other = commits(tmp_path / "a", 4), commits(tmp_path / "b", 4)
    log = tmp_path / "a/_delta_log"
    paths[-1].write_bytes(spoil(paths[-1].read_bytes(), paths[-2].read_bytes(), other[-1].read_bytes()))
    folder = LogFolder(str(tmp_path / "a"))
    entries = folder.entries()
    folder.remove(expired(entries, datetime.now(UTC) + timedelta(hours=1), folder.is_whole))
    assert sorted(path.name for path in log.glob("*.json")) == [f"{at:020d}.json" for at in (2, 3)]
    for path in (paths[-1], log / "_last_checkpoint"):
        path.unlink()
    assert sorted(DeltaTable(tmp_path / "a").to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2, 3]
