"""A check whether a directory of segment files is the store of a broker in controller mode (RocketMQ 5.x).

Such a broker keeps its epochs in the file ``epochFileCheckpoint`` of the store's root, beside ``commitlog``: a count, a
CRC, and a line ``epoch-start`` for each (MessageStoreConfig.getStorePathEpochFile, EpochFileCache, CheckpointFile). No
other replica need have what it has written above its confirm offset: after a fail-over it cuts that off
(AutoSwitchHAService), and other records are written there. By path nobody can ask how far it has confirmed.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from sources.epochs import Epochs

EPOCH_FILE: Final = "epochFileCheckpoint"


def controller_warning(commitlog: Path) -> str | None:
    """Return a warning about the log in the directory `commitlog`; None if no controller chooses its master."""
    found = commitlog.parent / EPOCH_FILE
    if not found.exists():
        return None
    return (
        f"{commitlog} is the log of a broker in controller mode ({found.name} lies beside it): what lies above its "
        "confirm offset is replicated too, and a fail-over may cut it off. The log would then end with Rewritten or "
        "AboveMaximum, and logtwin repair takes it back to what both share"
    )


def encode_epoch_file(epochs: Epochs) -> bytes:
    """Return the epoch file of a broker with these: number of lines, their CRC-32 without its top bit, the lines."""
    lines = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode("ascii")
    return b"%d\n%d\n%b" % (len(epochs), zlib.crc32(lines) & 0x7FFFFFFF, lines)
