"""How fast a replica is verified: `logtwin verify` against a plain read-and-hash of the same segment files, in one run.

``python -m bench.verify [megabytes] [rounds]``. A log is written and replicated by path. Then, in turns, one thread
reads and hashes the files (SHA-256, as in the ledger), and verify compares the replica with them: whole, by path. A
first round does not count. Verify's time is from its first look at the tables to its result, without the queue proof,
whose time is printed separately; Spark has been started before.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from pathlib import Path

from bench.contestants import config_of, replicate
from bench.payloads import LOG_ID
from bench.peers import ON_CORES, plain_session
from bench.scratch import scratch_folder
from pipeline.inspect.selection import ConfiguredLog
from pipeline.verify.run import Scope, verify_log
from tests.large_log import write_large_log

_PIECE_BYTES = 8 * 1024 * 1024


def read_and_hash(folder: Path) -> None:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_PIECE_BYTES))
    for path in sorted(folder.iterdir()):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])


def main(megabytes: int = 1000, rounds: int = 3) -> None:
    with scratch_folder() as folder, plain_session(folder, ON_CORES) as spark:
        size_bytes = write_large_log(folder / "log", megabytes * 1_000_000)
        config = config_of(folder / "lake", logs=[{"id": str(LOG_ID), "path": str(folder / "log")}])
        replicate(spark, config)
        hashing: list[float] = []
        verifying: list[float] = []
        proving_queues: list[float] = []
        for number in range(rounds + 1):
            started = time.perf_counter()
            read_and_hash(folder / "log")
            hashed = time.perf_counter()
            summary = verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope())
            if summary.problem is not None or summary.bytes != size_bytes:
                raise SystemExit(f"not equal: {summary.as_json()}")
            if number:
                hashing.append(hashed - started)
                verifying.append(summary.seconds)
                proving_queues.append(time.perf_counter() - hashed - summary.seconds)
        _print("read and sha256", size_bytes, hashing)
        _print("verify", size_bytes, verifying)
        print(f"queue proof, beside it: {statistics.median(proving_queues):.2f} s")
        ratios = [plain / ours for plain, ours in zip(hashing, verifying, strict=True)]
        print(f"ratio, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def _print(what: str, size_bytes: int, seconds: list[float]) -> None:
    middle = statistics.median(seconds)
    print(f"{what}: {middle:.2f} s, {size_bytes / 1e6 / middle:,.0f} MB/s (median of {len(seconds)})")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
