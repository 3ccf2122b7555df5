"""An embedded master in a thread of the test's own process; and tests that are coroutines."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

from sources.access.address import Address
from sources.rocketmq.embedded.master import EmbeddedMaster, MasterSettings
from sources.rocketmq.wire.client import RemotingClient


def settings_for(store: Path) -> MasterSettings:
    """Free ports, small files."""
    return MasterSettings(store=store, port=0, ha_port=0, file_size_bytes=1024 * 1024)


@contextmanager
def running_master(settings: MasterSettings, **changes: object) -> Iterator[EmbeddedMaster]:
    """The master serves while the `with` lasts, and has stopped cleanly after it. Raises what its start raises."""
    with master_and_loop(settings, **changes) as (master, _):
        yield master


@contextmanager
def master_and_loop(
    settings: MasterSettings, **changes: object
) -> Iterator[tuple[EmbeddedMaster, asyncio.AbstractEventLoop]]:
    """The same, with the loop that all of the master runs in."""
    master = EmbeddedMaster(replace(settings, **changes))  # type: ignore[arg-type]  # the caller's own field names
    with asyncio.Runner() as runner:
        runner.run(master.start())
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="embedded master")
        thread.start()
        try:
            yield master, loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            runner.run(master.stop())


@contextmanager
def paused(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Nothing runs in `loop` while the `with` lasts: the system accepts connections, and nobody answers them."""
    has_paused, goes_on = threading.Event(), threading.Event()

    def pause() -> None:
        has_paused.set()
        goes_on.wait()

    loop.call_soon_threadsafe(pause)
    has_paused.wait()
    try:
        yield
    finally:
        goes_on.set()


P = ParamSpec("P")


def scenario(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*given, **named))

    return run


def end_of(address: Address) -> int:
    with RemotingClient(address) as client:
        return client.commit_log_bounds().end
