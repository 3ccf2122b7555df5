"""Embedded masters and a producer for all of them, in one process: ``python -m bench.masters FOLDER COUNT RATE TOPIC``.

They get messages of 1 KB, RATE a second in all, one master after the other. What the process says, and when it ends, is
in `bench.load`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from bench.load import line_awaited, say
from sources.access.address import Address
from sources.rocketmq.embedded.master import EmbeddedMaster, MasterSettings
from sources.rocketmq.producer.producer import OutgoingMessage, Producer

BODY_BYTES = 1024
BODIES = 500
TICK_S = 0.02
FLUSH_MS = 500
FILE_BYTES = 1024 * 1024 * 1024  # RocketMQ's own; sparse, and no run fills one


async def serve(folder: Path, count: int, rate_per_s: float, topic: str) -> None:
    """Run the masters and send messages, as controlled by the input."""
    async with AsyncExitStack() as opened:
        masters = []
        for number in range(count):
            # All masters together flush as often as one alone would: the comparison is about who replicates them.
            master = EmbeddedMaster(
                MasterSettings(
                    store=folder / f"master-{number}",
                    port=0,
                    ha_port=0,
                    file_size_bytes=FILE_BYTES,
                    flush_interval_ms=FLUSH_MS * count,
                )
            )
            await master.start()
            opened.push_async_callback(master.stop)
            masters.append(master)
        say([[str(master.address), str(master.ha_address)] for master in masters])
        addresses = [master.address for master in masters]
        say(await asyncio.to_thread(send, addresses, rate_per_s, topic, line_awaited()))
        await asyncio.to_thread(sys.stdin.read)


def send(addresses: list[Address], rate_per_s: float, topic: str, stopping: threading.Event) -> list[int]:
    """Send to each master in turn until `stopping` is set. Returns how many messages each master has stored.

    Raises SystemExit if a message is refused.
    """
    chance = random.Random(7)
    bodies = [chance.randbytes(BODY_BYTES // 2) + b"the other half compresses " * 20 for _ in range(BODIES)]
    with ExitStack() as opened:
        producers = [opened.enter_context(Producer(address)) for address in addresses]
        stored = [0] * len(producers)
        sent, started_s = 0, time.monotonic()
        while not stopping.wait(TICK_S):
            due = int((time.monotonic() - started_s) * rate_per_s)
            for number in range(sent, due):
                body = bodies[number % BODIES][:BODY_BYTES]
                producers[number % len(producers)].submit(OutgoingMessage(topic, body, {"KEYS": f"order-{number}"}))
            sent = due
            for place, producer in enumerate(producers):
                results = list(producer.flush())
                if not all(result.is_stored for result in results):
                    raise SystemExit(f"a master refused a message: {results}")
                stored[place] += len(results)
    return stored


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
