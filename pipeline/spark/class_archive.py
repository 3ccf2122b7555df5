"""An archive of the classes that Spark's JVM loads (class-data sharing), so that a session answers sooner.

Loading the same twenty thousand classes is two fifths of what that JVM does until its first answer. Out of an archive
they are mapped, not read and verified again. To write one, 180 MB, takes a JVM half a minute of a processor and 1.6 GB
of memory: ``logtwin warm`` does it, and nothing else. A JVM that an archive does not fit, for example because of
another heap, silently goes without it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.config.jars import JarsConfig
from pipeline.system.folders import cache_folder

_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_OTHERS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def archive_file(given: JarsConfig, java: str, jars: Sequence[Path]) -> Path:
    """The archive for this Java and a class path of these jars, in this order; it need not exist.

    It lies beside the jars if they have a folder of their own, otherwise in the cache folder.
    """
    # It fits one Java, and jars that have not changed since. An image keeps of their times no more than the seconds.
    states = [(path, path.stat()) for path in (Path(java).resolve(), *jars)]
    fits = "|".join(f"{path} {state.st_size} {int(state.st_mtime)}" for path, state in states)
    folder = given.chosen_folder or cache_folder()
    return folder / "classes" / f"{hashlib.sha256(fits.encode()).hexdigest()[:16]}.jsa"


def archive_options(archive: Path, to: Path | None) -> str:
    """Options for a JVM that uses the archive, if it exists, or that writes one to `to` when it ends.

    None of them if the user has set an archive.
    """
    if any("SharedArchiveFile" in os.environ.get(name, "") for name in _OTHERS):
        return ""
    if to is not None:
        return f'-XX:ArchiveClassesAtExit="{to}" {_SILENT}'
    return f'-XX:SharedArchiveFile="{archive}" {_SILENT}' if archive.exists() else ""
