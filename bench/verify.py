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

from bench.contest import warmed_by_turns
from bench.contestants import config_of, replicate
from bench.payloads import LOG_ID
from bench.peers import ON_CORES, plain_session
from bench.scratch import scratch_folder
from pipeline.inspect.selection import ConfiguredLog
from pipeline.verify.run import Scope, verify_log
from tests.large_log import write_large_log

_PIECE_BYTES = 8 * 1024 * 1024


def read_and_hash(folder: Path) -> float:
    """The seconds that it takes."""
    digest, started = hashlib.sha256(), time.perf_counter()
    buffer = memoryview(bytearray(_PIECE_BYTES))
    for path in sorted(folder.iterdir()):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
    return time.perf_counter() - started


def main(megabytes: int = 1000, rounds: int = 3) -> None:
    with scratch_folder() as folder, plain_session(folder, ON_CORES) as spark:
        mb = write_large_log(folder / "log", megabytes * 1_000_000) / 1e6
        config = config_of(folder / "lake", logs=[{"id": str(LOG_ID), "path": str(folder / "log")}])
        replicate(spark, config)

        def verified(number: int) -> float:
            started = time.perf_counter()
            summary = verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope())
            if summary.problem is not None or summary.bytes != mb * 1e6:
                raise SystemExit(f"not equal: {summary.as_json()}")
            print(f"round {number}: queue proof, beside it: {time.perf_counter() - started - summary.seconds:.2f} s")
            return mb / summary.seconds

        taken = warmed_by_turns(rounds, verified, lambda _: mb / read_and_hash(folder / "log"))
        for name, values in (
            ("verify", [one.ours for one in taken]),
            ("read and sha256", [one.against for one in taken]),
        ):
            print(f"{name}: {statistics.median(values):,.0f} MB/s (median of {rounds})")
        print(f"ratio, round by round: {', '.join(f'{one.ratio:.2f}' for one in taken)}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
