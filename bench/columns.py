"""How fast commit-log bytes become Arrow: `columns.decode` against the record-by-record decoder, in the same run.

    python -m bench.columns [--messages 100000] [--body-bytes 1024] [--rounds 5]

Prints rows/s and MB/s of the best round of each. Only the ratio of their CPU times can be compared between machines, or
on a busy one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from sources.offsets import Offset
from sources.rocketmq.columns import codec
from sources.rocketmq.format import commitlog, properties

CHUNK_BYTES = 16 * 1024 * 1024  # what a task decodes at a time


def make_log(messages: int, body_bytes: int) -> bytes:
    """A log of plain messages, eight properties each, as a 5.x broker stores them."""
    parts: list[bytes] = []
    at = 0
    for number in range(messages):
        record = commitlog.encode(make_message(number, at, body_bytes))
        parts.append(record)
        at += len(record)
    return b"".join(parts)


def make_message(number: int, offset: int, body_bytes: int) -> commitlog.Message:
    body = (number.to_bytes(8, "big") * (body_bytes // 8 + 1))[:body_bytes]
    names = {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": f"7F00000100002A9F18B4AAC2{number:08X}",
        "CLUSTER": "DefaultCluster",
        "TAGS": f"Tag{number % 16}",
        "KEYS": f"order-{number} customer-{number % 1000}",
        "WAIT": "true",
        "TRACE_ON": "true",
        "trace-id": f"{number * 2654435761 % 2**64:016x}",
    }
    return commitlog.Message(
        magic=commitlog.V1,
        body_crc=commitlog.body_crc(body),
        queue_id=number % 8,
        flag=0,
        queue_offset=number // 8,
        offset=Offset(offset),
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000 + number,
        born_host=commitlog.Host(bytes((10, 0, 0, number % 32)), 40000 + number % 32),
        store_timestamp_ms=1_700_000_000_001 + number,
        store_host=commitlog.Host(bytes((10, 0, 1, 1)), 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=("orders", "payments", "user-events", "telemetry")[number % 4],
        properties=properties.encode(names),
    )


def decode_columns(log: bytes) -> None:
    view, at = memoryview(log), 0
    while at < len(log):
        at = codec.decode(view[at : at + CHUNK_BYTES], Offset(at), Offset(len(log))).end


def decode_records(log: bytes) -> None:
    """Decode every field to a Python object, with the properties, as a plain decoder has to do for a row."""
    at = 0
    while at < len(log):
        record = commitlog.decode(log, at, Offset(at))
        if not isinstance(record, commitlog.Message):
            raise SystemExit("the benchmark's own log is wrong")
        str(record.born_host), str(record.store_host), properties.decode(record.properties)
        at += record.size


def best_seconds(decoder: Callable[[bytes], None], log: bytes, rounds: int) -> tuple[float, float]:
    """The wall time and CPU time of the best round, in seconds."""
    wall, cpu = [], []
    for _ in range(rounds):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        decoder(log)
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
    return min(wall), min(cpu)


def speed(rows: int, size_bytes: int, time_s: float) -> str:
    return f"{rows / time_s:>9,.0f} rows/s {size_bytes / time_s / 1e6:>6,.0f} MB/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    log = make_log(options.messages, options.body_bytes)
    cpu_s = {}
    for name, decoder in (("columns", decode_columns), ("record by record", decode_records)):
        wall_s, cpu_s[name] = best_seconds(decoder, log, options.rounds)
        speeds = [speed(options.messages, len(log), time_s) for time_s in (wall_s, cpu_s[name])]
        print(f"{name:>16}: {speeds[0]} by the clock, {speeds[1]} of CPU time")
    print(f"{'ratio':>16}: {cpu_s['record by record'] / cpu_s['columns']:.1f} in CPU time")


if __name__ == "__main__":
    main()
