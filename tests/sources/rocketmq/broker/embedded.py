"""An embedded master in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sources.rocketmq.broker.master import EmbeddedMaster, MasterSettings


def settings_for(store: Path) -> MasterSettings:
    """Free ports, small files."""
    return MasterSettings(store=store, port=0, ha_port=0, file_size_bytes=1024 * 1024)


@contextmanager
def running_master(settings: MasterSettings, **changes: object) -> Iterator[EmbeddedMaster]:
    """The master serves while the `with` lasts, and has stopped cleanly after it. Raises what its start raises."""
    master = EmbeddedMaster(replace(settings, **changes))  # type: ignore[arg-type]  # the caller's own field names
    with asyncio.Runner() as runner:
        runner.run(master.start())
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="embedded master")
        thread.start()
        try:
            yield master
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            runner.run(master.stop())
