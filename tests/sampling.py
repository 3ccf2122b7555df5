"""How much of a loop over every byte is run: all of it in the soak, every seventh one and the edges else."""

import os
from collections.abc import Collection, Sequence
from typing import Final

IS_EXHAUSTIVE: Final = os.environ.get("LOGTWIN_HYPOTHESIS") == "exhaustive"
_STEP: Final = 7  # odd: it meets every place in a word


def some_of(places: Sequence[int], edges: Collection[int] = ()) -> list[int]:
    """`places`, or some of them: the first and the last one, and those at `edges` and beside them, are among these."""
    if IS_EXHAUSTIVE or not places:
        return list(places)
    wanted = {near + beside for near in (*edges, places[0], places[-1]) for beside in (-1, 0, 1)}
    return sorted({*places[::_STEP], *wanted.intersection(places)})
