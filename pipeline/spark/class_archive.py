"""An archive of the classes that a session loads (class-data sharing): they are mapped, not read and verified again.

To load the same twenty thousand classes is a third of what Spark's JVM does until its first answer. Java 17 makes no
archive by itself, so that of a question, if it finds none, writes one when it ends, 180 MB into the cache folder, for
which nobody waits: its Python has ended before. A job takes what is there, and writes none, which would slow it down.
A JVM that an archive does not fit, of another heap for one, goes without, and says
nothing.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.system.cache import cache_folder

_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_OTHERS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_WRITTEN_WITHIN_S: Final = 3600.0


def archive_options(java: str, jars: Sequence[Path], *, made: bool) -> str:
    """For a JVM of that Java whose class path has these jars, in this order. None where somebody has chosen others.

    `made`: one that finds none leaves one.
    """
    if any("SharedArchiveFile" in os.environ.get(name, "") for name in _OTHERS):
        return ""
    # it fits one Java, and jars that nobody has touched since
    fits = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in (Path(java).resolve(), *jars)]
    key = hashlib.sha256("|".join(fits).encode()).hexdigest()[:16]
    folder = cache_folder() / "classes"
    file = folder / f"{key}.jsa"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _take_in(folder, key, file)
    except OSError:
        return ""  # a cache that cannot be written is none
    if file.exists():
        return f'-XX:SharedArchiveFile="{file}" {_SILENT}'
    return f'-XX:ArchiveClassesAtExit="{folder}/{key}.{os.getpid()}.new" {_SILENT}' if made else ""


def _take_in(folder: Path, key: str, file: Path) -> None:
    """An archive that is whole becomes `file`: several JVMs may write one each. Java writes its first bytes last."""
    for new in folder.glob(f"{key}.*.new"):
        with new.open("rb") as found:
            is_whole = any(found.read(4))
        if is_whole and not file.exists():
            new.rename(file)
        elif is_whole or time.time() - new.stat().st_mtime > _WRITTEN_WITHIN_S:
            new.unlink(missing_ok=True)
