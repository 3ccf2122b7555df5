"""What real brokers wrote, and what RocketMQ's own Java decoder says it means.

An archive of tests/fixtures/ holds the segment files of one broker's commit log, the truth about every record, and
what went over the wire; its README.md says how it was made.
"""

import functools
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("4.9.7", "5.5.0")


@dataclass(frozen=True)
class Fixture:
    """One extracted archive. Everything in it is as the broker left it."""

    version: str
    path: Path

    @property
    def commitlog_path(self) -> Path:
        """The directory of segment files; they reach beyond `max_offset`, with zeros."""
        return self.path / "commitlog"

    @functools.cached_property
    def max_offset(self) -> int:
        """First byte after the last record. The log starts at 0."""
        return int((self.path / "max-offset.txt").read_text())

    @functools.cached_property
    def log(self) -> bytes:
        """The whole log, up to `max_offset`."""
        return b"".join(path.read_bytes() for path in sorted(self.commitlog_path.iterdir()))[: self.max_offset]

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One dict a record, blanks included, in log order, as truth.jsonl has them."""
        with (self.path / "truth.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @functools.cached_property
    def consume_queues(self) -> list[dict[str, Any]]:
        """One dict a queue; its `entries` are [physical_offset, size, tags_code]."""
        with (self.path / "consumequeue.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def wire(self, name: str) -> bytes:
        """A wire capture, for example ``28.resp.bin`` or ``ha-stream.bin``."""
        return (self.path / "wire" / name).read_bytes()


def extract(version: str, directory: Path) -> Fixture:
    """Unpacks the archive of a broker's version into `directory`."""
    unpack(FIXTURES / version / f"rocketmq-{version}-public.tar.gz", directory)
    return Fixture(version, directory / f"rocketmq-{version}-public")


def unpack(archive: Path, directory: Path) -> None:
    """An archive of this repository."""
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):  # 3.11.4 has it, 3.11.2 of Debian 12 has not
            files.extraction_filter = tarfile.data_filter
        files.extractall(directory)  # noqa: S202 - it is ours
