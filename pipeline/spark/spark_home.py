"""A home of Spark whose Python processes import pyspark from files that are compiled once.

Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of every Python process that it starts: a daemon for
each kind of worker, and a process for each stream. Python keeps no compiled modules of an archive, so each of these
processes compiles a hundred modules anew, 1 s of a processor. pip installs the same modules as files, too. The home
made here is the installed one by symbolic links, with those files where Spark looks for its archives.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from pipeline.system.folders import cache_folder

_INSTALLED = Path(pyspark.__file__).parent
_ARCHIVES = Path("python", "lib")


@contextmanager
def compiled_home() -> Iterator[None]:
    """Start a local JVM with this home, unless the user has chosen one or there is no place for it.

    What starts executors on other machines hands them the archives of its home, and needs them as they are.
    """
    if "SPARK_HOME" in os.environ:
        yield
        return
    with suppress(OSError):  # a cache that cannot be written, or links that cannot be made
        os.environ["SPARK_HOME"] = str(home())
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def home() -> Path:
    """The folder of that home, made if it is not there. Raises OSError."""
    key = hashlib.sha256(f"{_INSTALLED} {pyspark.__version__}".encode()).hexdigest()[:16]
    folder = cache_folder() / "spark-home" / key
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder.parent))
        try:
            _link(new)
            new.rename(folder)
        except OSError:
            shutil.rmtree(new)
            if not folder.exists():  # or another process was first, and made the same
                raise
    return folder


def _link(new: Path) -> None:
    for entry in _INSTALLED.iterdir():
        if entry.name != _ARCHIVES.parts[0]:
            (new / entry.name).symlink_to(entry)
    for archive in (_INSTALLED / _ARCHIVES).glob("*.zip"):
        package = archive.name.partition("-")[0].removesuffix(".zip")
        place = new / _ARCHIVES / archive.name
        place.mkdir(parents=True)
        (place / package).symlink_to(_folder_of(package))


def _folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(package)
    return Path(found.origin).parent
