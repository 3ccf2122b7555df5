"""Commits that land, and whose writer is told that nobody knows whether they did."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sinks.delta.kernel import KernelConflict, KernelTable


def lose_answers(patch: pytest.MonkeyPatch) -> Counter[str]:
    """From now on, the answer to the first commit of each kind to each table is lost. Returns how many were, by table's
    name; it grows with those that are.
    """
    lost: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()

    def unheard(name: str) -> Callable[..., int]:
        commit = getattr(KernelTable, name)

        def lossy(self: KernelTable, *given: Any, **named: Any) -> int:
            version = int(commit(self, *given, **named))
            if (self.path, name) not in seen:
                seen.add((self.path, name))
                lost[Path(self.path).name] += 1
                raise KernelConflict("the answer was lost")
            return version

        return lossy

    for name in ("commit", "replace", "rearrange"):
        patch.setattr(KernelTable, name, unheard(name))
    return lost


def missing_files(warehouse: Path) -> list[str]:
    """The data files that tables of the warehouse name, and that are not there."""
    tables = [DeltaTable(log.parent) for log in sorted(warehouse.rglob("_delta_log"))]
    return [name for table in tables for name in table.file_uris() if not Path(name).is_file()]
