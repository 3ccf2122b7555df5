"""What a process writes has the rights of its warehouse, or less: who cannot read the tables cannot read that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077


def limit_rights(warehouse: Path | None) -> None:
    """From now on files and folders that this process and its children make have no more rights than `warehouse`.

    None, or a folder that cannot be looked at: one in an object store, which has no such rights; then they are the
    owner's alone. A folder that does not exist yet gets the rights that the process gives to all that it makes.
    """
    before = os.umask(_OTHERS)
    os.umask(before | _missing(warehouse))


def _missing(warehouse: Path | None) -> int:
    try:
        return _OTHERS if warehouse is None else ~warehouse.stat().st_mode & _OTHERS
    except FileNotFoundError:
        return 0
    except OSError:
        return _OTHERS
