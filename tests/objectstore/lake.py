"""What a warehouse on the S3 server holds, asked there: by another engine or by plain HTTP, past every link."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from pipeline.demo.s3_server import S3Server
from sources.master import Committed
from sources.offsets import LogId, Offset
from tests.objectstore.server import PlainClient
from tests.sinks.groups import assert_ledger, named
from tests.sinks.memory_master import MemoryMaster, RecordingSession


def options_of(server: S3Server, endpoint: str | None = None) -> dict[str, str]:
    """What delta-rs and others are told of it, or of a link to it; also as variables of the environment."""
    return {
        "AWS_ENDPOINT_URL": endpoint or server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.keys.access_key, "AWS_SECRET_ACCESS_KEY": server.keys.secret_key,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lake:
    """The warehouse `folder` in the server's bucket."""

    server: S3Server
    folder: str = "lake"

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"s3://{self.server.bucket}/{self.folder}/{name}", storage_options=options_of(self.server))

    def versions(self, start: int = 0) -> list[bytes]:
        """Those of the log table, from `start` on."""
        client, found = PlainClient.of(self.server), list[bytes]()
        place = f"{self.folder}/log/_delta_log"
        while (reply := client("GET", f"{place}/{start + len(found):020d}.json")).status == 200:
            found.append(reply.body)
        return found

    def position(self, name: str) -> int | None:
        found: int | None = self.table("log").transaction_version(f"logtwin/{named(name)}@0")
        return found

    def rows(self, table: str, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(table).to_pyarrow_table().to_pylist()
        return [row for row in rows if row["log_id"] == str(named(name))]

    def assert_one_copy(self, master: MemoryMaster, end: int) -> None:
        """All of `master` below `end` is there once, and the ledger says so."""
        name, records = master.log_id.name, [row for row in master.records() if row["offset"] < end]
        assert self.position(name) == end
        assert sorted(row["offset"] for row in self.rows("log", name)) == [row["offset"] for row in records]
        assert_ledger(self.rows("ledger", name), records)


class Distrustful(RecordingSession):
    """A master's end of a session: what is promised has to be in the table by then."""

    def __init__(self, position: Callable[[], int | None]) -> None:
        super().__init__()
        self._position = position
        self.early: list[Offset] = []

    def acknowledge(self, positions: Mapping[LogId, Committed]) -> None:
        super().acknowledge(positions)
        if self.promises[-1] > (self._position() or 0):
            self.early.append(self.promises[-1])
