"""The ceiling of a way into Parquet: pyarrow writes rows that are decoded already, one process for each core.

The rows are a log's, with the table's columns; each process holds its share of them in memory before any of them
begins. Row groups and Parquet's options are those of logtwin's files. Nothing is read, decoded, checked, summed, synced
or committed, and no statistics are made for Delta.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pyarrow.parquet as pq

from bench.payloads import LOG_ID, opened
from sinks.files import parquet_options
from sinks.tables import LOG, with_identity
from sources.master import Damage
from sources.offsets import OffsetRange

_DECODED_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class _Share:
    """What one process wrote, and when, by the clock that all of them have."""

    rows: int
    began_s: float
    ended_s: float


def written_rows_per_s(log_folder: Path, target: Path, *, processes: int) -> float:
    """All rows of the log into `target`, a new folder: their number by the time from the first begin to the last end.

    Raises BrokenBarrierError where a process is not ready in time.
    """
    target.mkdir()
    log = opened(log_folder)
    pieces = log.plan(log.bounds(), cores=processes)
    context = multiprocessing.get_context("spawn")  # whoever calls may have threads
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        ready = manager.Barrier(processes, timeout=_DECODED_WITHIN_S)
        waiting = [
            pool.submit(_write, log_folder, pieces[one::processes], target / f"{one}.parquet", ready)
            for one in range(processes)
        ]
        shares = [one.result() for one in waiting]
    took_s = max(share.ended_s for share in shares) - min(share.began_s for share in shares)
    return sum(share.rows for share in shares) / took_s


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
        for rows in decoded:
            parquet.write_batch(rows, row_group_size=rows.num_rows)
    return _Share(sum(rows.num_rows for rows in decoded), began_s, time.monotonic())
