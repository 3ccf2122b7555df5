"""An embedded master for a job to replicate, and what a test asks it."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sources.rocketmq.embedded.master import EmbeddedMaster
from sources.rocketmq.wire.client import RemotingClient
from tests.patience import meanwhile
from tests.sources.rocketmq.embedded.embedded import master_and_loop, paused, settings_for


@dataclass(frozen=True)
class Served:
    master: EmbeddedMaster
    loop: asyncio.AbstractEventLoop

    @property
    def options(self) -> dict[str, str]:
        return {"master": str(self.master.ha_address), "remoting": str(self.master.address)}

    @property
    def end(self) -> int:
        with RemotingClient(self.master.address) as client:
            return client.commit_log_bounds().end

    def log(self) -> bytes:
        files = sorted((self.master.settings.store / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files)[: self.end]

    def paused(self) -> AbstractContextManager[None]:
        """It says nothing while the `with` lasts, as a process that is stopped."""
        return paused(self.loop)

    @contextmanager
    def watched(self) -> Iterator[set[int]]:
        """Every offset that a connected slave was seen to have acknowledged, while the `with` lasts."""
        seen: set[int] = set()

        def look() -> None:
            slaves = (client.ha_status() or {}).get("haConnectionInfo", [])
            seen.update(int(slave["slaveAckOffset"]) for slave in slaves)

        with RemotingClient(self.master.address) as client, meanwhile(look, every_s=0.01):
            yield seen


@contextmanager
def embedded_master(store: Path, commitlog: Path | None = None, **changes: object) -> Iterator[Served]:
    """A master on free ports with files of 1 MiB; on a copy of `commitlog`, if given. `changes` of its settings."""
    if commitlog is not None:
        shutil.copytree(commitlog, store / "commitlog")
    with master_and_loop(settings_for(store), **changes) as (master, loop):
        yield Served(master, loop)
