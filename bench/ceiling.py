"""The ceiling for writing Parquet: pyarrow writes rows that are decoded already, one process for each core.

The rows are those of a log's first batch, with the table's columns, for messages of 1 KB. Each process holds its share
of them in memory before any of them begins, and writes it repeatedly until it has as many rows as the whole log. (A
process that held all of a log would return gigabytes to the machine before logtwin's turn. On a virtual machine it
costs the next process a twentieth of its speed to get them back.) Row groups and Parquet options are those of logtwin's
files. Nothing is read, decoded, checked, checksummed, synced or committed, and no statistics are made for Delta.

logtwin catches up with the log as in `bench.catch_up`, steady state.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pyarrow.parquet as pq

from bench.catch_up import LOG_BATCHES, SIZES, Contest, Log
from bench.contest import Figure, Goal, Settings, warmed_by_turns
from bench.payloads import LOG_ID, opened
from bench.peers import CORES, running_session
from sinks.delta.files import parquet_options
from sinks.tables import LOG, with_identity
from sources.master import Damage
from sources.offsets import OffsetRange

SIZE, GOAL = SIZES[0], Goal(least=0.6)
_DECODED_WITHIN_S = 120.0


def measure(settings: Settings) -> Iterator[Figure]:
    with running_session(settings.folder) as spark:
        log = Log.written(settings, SIZE)
        contest = Contest(spark, settings, log)

        def pyarrow(number: int) -> float:
            os.sync()
            return contest.ended(number, "pyarrow", written_rows_per_s(log, contest.lake, processes=CORES))

        rounds = warmed_by_turns(settings.rounds, contest.ours, pyarrow)
        against = f"pyarrow writes decoded rows, {CORES} processes"
        yield contest.figure(f"ceiling, messages of {SIZE.name}", against, rounds, GOAL)
        shutil.rmtree(log.folder)


@dataclass(frozen=True, slots=True)
class _Share:
    """What one process wrote, and when, by a clock that all processes share."""

    rows: int
    began_s: float
    ended_s: float


def written_rows_per_s(log: Log, target: Path, *, processes: int) -> float:
    """Write as many rows as the log has to `target`, a new folder; rows/s from the first start to the last end.

    Raises BrokenBarrierError if a process is not ready in time.
    """
    target.mkdir()
    pieces = _first_batch(log, processes)
    context = multiprocessing.get_context("spawn")  # the caller may have threads
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        ready = manager.Barrier(processes, timeout=_DECODED_WITHIN_S)
        waiting = [
            pool.submit(_write, log.folder, pieces[one::processes], target / f"{one}.parquet", ready)
            for one in range(processes)
        ]
        shares = [one.result() for one in waiting]
    took_s = max(share.ended_s for share in shares) - min(share.began_s for share in shares)
    return sum(share.rows for share in shares) / took_s


def _first_batch(log: Log, processes: int) -> Sequence[OffsetRange]:
    master = opened(log.folder)
    bounds = master.bounds()
    end = master.end_of_batch(bounds.start, bounds.end, log.batch_bytes)
    return master.plan(OffsetRange(bounds.start, end), cores=processes)


def _write(log_folder: Path, pieces: Sequence[OffsetRange], file: Path, ready: Barrier) -> _Share:
    log = opened(log_folder)
    decoded = []
    for piece in pieces:
        for chunk in log.read(piece, committed=None, boundary=True):
            if isinstance(chunk, Damage):
                raise chunk.error
            decoded.append(with_identity(LOG, LOG_ID, 0, chunk.records))
    ready.wait()
    began_s = time.monotonic()
    with pq.ParquetWriter(file, LOG.schema.remove_metadata(), **parquet_options(LOG.schema)) as parquet:
        for rows in decoded * LOG_BATCHES:
            parquet.write_batch(rows, row_group_size=rows.num_rows)
    return _Share(LOG_BATCHES * sum(rows.num_rows for rows in decoded), began_s, time.monotonic())
