"""Reads what a batch of a stream reads, where Spark keeps it: in the offset log of the query's checkpoint.

Spark writes a batch's offset there before it runs the batch: ``offsets/<batch id>`` is a write-ahead log. Its file:

====  ================================================================
line  content
====  ================================================================
1     the version of the format, ``v1``
2     the query's metadata as JSON: watermark, time, some configuration
3     the offset of the first source, as it gave it; others follow
====  ================================================================

Source: `OffsetSeqLog` of Spark 4.2 and before. Collecting a batch's rows with a Spark job would take 40 ms instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sinks.storage.errors import failed_by
from sources.errors import LogtwinError

VERSION = "v1"


def offset_in(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """Return the offset of the only source of the query with `checkpoint`, a folder, in the batch `batch_id`.

    Raises LogtwinError if it is not there as Spark writes it, and what `failed_by` says if it cannot be read.
    """
    path = checkpoint / "offsets" / str(batch_id)
    try:
        version, _, offset = path.read_text(encoding="utf-8").split("\n")
        if version != VERSION:
            raise ValueError(f"version {version}")
        found: dict[str, Any] = json.loads(offset)
    except (OSError, ValueError) as error:
        kind = failed_by(error) if isinstance(error, OSError) else LogtwinError
        raise kind(
            "the query's offset log does not say what a batch reads",
            expected=f"{VERSION}, metadata and one offset in {path}",
            found=error,
            hint="Is spark.sql.streaming.offsetLog.formatVersion another than 1? Otherwise please report it.",
        ) from error
    return found
