"""A day of one-second commits in seconds: the Delta log of a stream, written by hand.

Every commit is made from the newest one, which Kernel wrote: the same actions with the next offsets, and the version's
checksum as Kernel's hook leaves it. Kernel and delta-rs read it like any other.
"""

import copy
import errno
import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

from tests.sinks.long_log import RECORD_BYTES

COMMIT_RECORDS = 5
COMMIT_BYTES = COMMIT_RECORDS * RECORD_BYTES


def add_commits(table: Path, count: int, *, newest_age_s: float = 0) -> None:
    """`count` more commits, one a second, the newest `newest_age_s` seconds ago, each with one file of COMMIT_RECORDS.

    All files are links to the newest one, and only the Delta log says that their offsets differ.
    """
    newest_at = time.time() - newest_age_s
    log = table / "_delta_log"
    newest = max(int(path.stem) for path in log.glob("[0-9]*.json"))
    actions = [json.loads(line) for line in (log / f"{newest:020d}.json").read_text().splitlines()]
    checksum = json.loads((log / f"{newest:020d}.crc").read_text())
    for step in range(1, count + 1):
        one = [_next(table, action, step) for action in actions]
        at = newest_at - (count - step)
        _write(log / f"{newest + step:020d}.json", "".join(json.dumps(action) + "\n" for action in one), at)
        checksum = _grown(checksum, one)
        _write(log / f"{newest + step:020d}.crc", json.dumps(checksum), at)


def _next(table: Path, action: dict[str, Any], step: int) -> dict[str, Any]:
    """An action of the newest commit as it would be `step` commits later."""
    later = copy.deepcopy(action)
    if "txn" in later:
        later["txn"]["version"] += step * COMMIT_BYTES
    elif "domainMetadata" in later:
        state = json.loads(later["domainMetadata"]["configuration"])
        state["offset"] += step * COMMIT_BYTES
        later["domainMetadata"]["configuration"] = json.dumps(state)
    elif "add" in later:
        _move(table, later["add"], step)
    else:
        later["commitInfo"]["txnId"] = str(uuid.uuid4())
    return later


def _move(table: Path, add: dict[str, Any], step: int) -> None:
    statistics = json.loads(add["stats"])
    for bounds in (statistics["minValues"], statistics["maxValues"]):
        bounds["offset"] += step * COMMIT_BYTES
    path = _link(table, add["path"])
    add.update(path=path.name, size=path.stat().st_size, stats=json.dumps(statistics))


def _link(table: Path, name: str) -> Path:
    path = table / f"part-{uuid.uuid4()}.zstd.parquet"
    try:
        os.link(table / name, path)
    except OSError as error:
        if error.errno != errno.EMLINK:  # ext4 allows 65,000 of one file
            raise
        shutil.copy2(table / name, path)
    return path


def _grown(checksum: dict[str, Any], actions: list[dict[str, Any]]) -> dict[str, Any]:
    """The checksum of the version after a commit of these `actions`."""
    later = {name: value for name, value in checksum.items() if name != "fileSizeHistogram"}
    found = {name: value for action in actions for name, value in action.items()}
    later["numFiles"] += 1
    later["tableSizeBytes"] += found["add"]["size"]
    later["txnId"] = found["commitInfo"]["txnId"]
    mine = found["domainMetadata"]
    others = [one for one in checksum["domainMetadata"] if one["domain"] != mine["domain"]]
    later["domainMetadata"] = [*others, mine]
    return later


def _write(path: Path, text: str, at: float) -> None:
    path.write_text(text)
    os.utime(path, (at, at))
