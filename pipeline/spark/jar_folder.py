"""A folder of jars that ``logtwin jars`` wrote: for hosts without a network, for images, for spark-submit's ``--jars``.

Each set of jars has a folder of its own in it, whose name has the version, with a list of their SHA-256 that
``sha256sum --check`` reads. It is written whole or not at all. Whoever takes jars out of it takes exactly what its list
says, or none.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.config.jars import FOLDER
from sources.errors import ConfigurationError

LIST: Final = "SHA256SUMS"
"""The file of a set with a line ``<SHA-256>  <name>`` for each of its jars."""


def jars_of(folder: Path, name: str) -> list[Path]:
    """The jars of the set `name`. Raises ConfigurationError if one of them is missing, changed, or not in the list."""
    ours = folder / name
    listed = _listed(ours)
    jars = sorted(ours.glob("*.jar"))
    found = {jar.name: _sha256(jar) for jar in jars}
    for jar in sorted(listed.keys() | found.keys()):
        if listed.get(jar) != found.get(jar):
            expected, actual = (of.get(jar, "no such file") for of in (listed, found))
            raise _unfit(ours, f"{jar} is not as {LIST} says", expected=expected, found=actual)
    return jars


def write_jars(folder: Path, name: str, jars: Sequence[Path]) -> bool:
    """Write the set `name` with copies of `jars`; False if it is there already. What is not sound is replaced.

    Raises ConfigurationError if it cannot be written.
    """
    try:
        if [jar.name for jar in jars_of(folder, name)] == [jar.name for jar in jars]:
            return False
    except ConfigurationError:
        pass  # not there, or not sound
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as work:
            new = Path(work) / name  # with the rights that the process gives to all that it makes
            new.mkdir()
            for jar in jars:
                shutil.copyfile(jar, new / jar.name)
            (new / LIST).write_text("".join(f"{_sha256(new / jar.name)}  {jar.name}\n" for jar in jars))
            shutil.rmtree(folder / name, ignore_errors=True)
            new.rename(folder / name)
    except OSError as error:
        raise ConfigurationError(f"the jars cannot be written to {folder}", found=error.strerror) from error
    return True


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        return str(error.strerror)


def _listed(ours: Path) -> dict[str, str]:
    """The checksum of each jar of a set by its name."""
    try:
        lines = (ours / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    if not lines:
        others = sorted(path.parent.name for path in ours.parent.glob(f"*/{LIST}"))
        found = ", ".join(others) or ("an empty folder" if ours.parent.is_dir() else "no such folder")
        raise _unfit(ours.parent, f"no {ours.name} with a {LIST}", expected=ours.name, found=found)
    return {jar: digest for digest, _, jar in (line.partition("  ") for line in lines)}


def _unfit(where: Path, problem: str, *, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the jars in {where} are not those of this logtwin: {problem}",
        expected=expected,
        found=found,
        hint=f"logtwin jars --to writes them anew, where there is a network; {FOLDER} or [jars] names the folder.",
    )
