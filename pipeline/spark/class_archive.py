"""An archive of the classes that a session loads (class-data sharing): they are mapped, not read and verified again.

Loading the same twenty thousand classes is a third of what Spark's JVM does until its first answer. Java 17 makes no
archive by itself. So the JVM of a query writes one when it ends, if it found none: 180 MB in the cache folder. Nobody
waits for that, because its Python process has already ended. A job uses an existing archive but writes none, which
would slow it down. A JVM that an archive does not fit, for example because of another heap, silently ignores it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.system.folders import cache_folder

_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_OTHERS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_WRITTEN_WITHIN_S: Final = 3600.0


def archive_options(java: str, jars: Sequence[Path], *, made: bool) -> str:
    """JVM options for that Java and a class path of these jars, in this order; empty if the user has set an archive.

    `made`: a JVM that finds no archive writes one.
    """
    if any("SharedArchiveFile" in os.environ.get(name, "") for name in _OTHERS):
        return ""
    # an archive fits one Java, and jars that have not changed since
    fits = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in (Path(java).resolve(), *jars)]
    key = hashlib.sha256("|".join(fits).encode()).hexdigest()[:16]
    folder = cache_folder() / "classes"
    file = folder / f"{key}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _take_in(folder, key, file)
    except OSError:
        return ""  # the cache cannot be written
    if file.exists():
        return f'-XX:SharedArchiveFile="{file}" {_SILENT}'
    return f'-XX:ArchiveClassesAtExit="{folder}/{key}.{os.getpid()}.new" {_SILENT}' if made else ""


def _take_in(folder: Path, key: str, file: Path) -> None:
    """Make a complete archive `file`: several JVMs may write one each. Java writes the first bytes of one last."""
    for new in folder.glob(f"{key}.*.new"):
        with new.open("rb") as found:
            is_whole = any(found.read(4))
        if is_whole and not file.exists():
            new.rename(file)
        elif is_whole or time.time() - new.stat().st_mtime > _WRITTEN_WITHIN_S:
            new.unlink(missing_ok=True)
