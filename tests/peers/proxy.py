"""A TCP proxy on loopback for tests: a network that breaks at any byte of either direction."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Self

PIECE_BYTES = 64 * 1024
_START_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Cut:
    """Of one connection: exactly so many bytes pass to the client, or to the server, then both ends are closed."""

    to_client: bool
    after_bytes: int

    def allowed_bytes(self, *, to_client: bool) -> int:
        return self.after_bytes if to_client == self.to_client else UNLIMITED

    def sooner(self) -> Cut:
        """For a later connection, after one that ended before this many bytes."""
        return Cut(self.to_client, self.after_bytes // 2)


UNLIMITED = 2**62
NEVER = Cut(to_client=True, after_bytes=UNLIMITED)


def random_cuts(seed: int, count: int, longest: int, *, early: float = 0.5) -> Iterator[Cut]:
    """One for each of `count` connections: a share of `early` within the first HA heads, others anywhere.

    A slave sends 8 bytes at once and more only after seconds, so cuts towards the master come within the first 8.
    """
    chance = random.Random(seed)
    for _ in range(count):
        is_early = chance.random() < early
        if is_early and chance.random() < 0.5:
            yield Cut(to_client=False, after_bytes=chance.randrange(9))
        else:
            yield Cut(to_client=True, after_bytes=chance.randrange(40 if is_early else longest))


class Proxy:
    """Forwards to a port of the loopback, in a thread of its own, as long as the `with` lasts.

    `cuts` are those of the first connections, in the order in which they come, and those after them are left alone. A
    connection that ends before its cut leaves it to a later one, which it cuts sooner: all of them are made in the end.
    """

    def __init__(self, target: int, *, cuts: Iterator[Cut] | None = None) -> None:
        self.port = 0
        self.cut_connections = 0
        self._target = target
        self._cuts = iter(cuts or ())
        self._left_over: deque[Cut] = deque()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_WITHIN_S):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        links = asyncio.all_tasks() - {asyncio.current_task()}
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _forward(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        """One connection, until either end closes it, or it is cut."""
        cut = next(self._cuts, None) or (self._left_over.popleft() if self._left_over else NEVER)
        is_cut = False
        writers = [client_writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(server_writer)
            ways = (
                _Way(client_reader, server_writer, cut.allowed_bytes(to_client=False)),
                _Way(server_reader, client_writer, cut.allowed_bytes(to_client=True)),
            )
            await _first_of(*(way.run for way in ways))
            is_cut = any(way.is_cut for way in ways)
        except OSError:
            pass  # the server is away, or an end was reset: closing the other one tells it
        finally:
            self.cut_connections += is_cut
            if not is_cut and cut is not NEVER:
                self._left_over.append(cut.sooner())
            for writer in writers:
                writer.close()


class _Way:
    """One direction of a connection: what is received goes on, up to `allowed_bytes` in all."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed_bytes: int) -> None:
        self.is_cut = allowed_bytes == 0
        self._reader = reader
        self._writer = writer
        self._left_bytes = allowed_bytes

    async def run(self) -> None:
        """Until the sender ends, the receiver is gone or everything allowed has passed."""
        while not self.is_cut and (data := await self._reader.read(PIECE_BYTES)):
            self._writer.write(data[: self._left_bytes])
            await self._writer.drain()
            self._left_bytes -= len(data)
            self.is_cut = self._left_bytes <= 0


async def _first_of(*runs: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs them side by side until the first ends; raises what it raised. The others are cancelled."""
    tasks = [asyncio.create_task(run()) for run in runs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
