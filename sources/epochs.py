"""Epochs of elected masters, and where two histories of one log part. Pure.

A group that elects its master numbers the elections. Each master appends from where its log ended when it was elected,
so a list of (number, start) tells for every byte which master wrote it. Two logs of one group are the same up to the
end of the last epoch that both lists have. That is how a slave of RocketMQ finds where to cut its log
(`AutoSwitchHAClient.doTruncate`), and how this replica does.

A replica keeps the newest epochs (`KEPT`) below its position that it has seen, each with the time it was first seen
and, if that master was the one read from, its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from sources.errors import EpochsContradict, FailedOver, LogtwinError
from sources.loss import Condition
from sources.offsets import Offset

KEPT: Final = 100
"""How many epochs, the newest ones, a replica knows. A master that shares none of them is a different one."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The time of one elected master: its records start at offset `start`, and end where the next epoch starts.

    `since_us` is when a replica first saw it, in microseconds since 1970, UTC.
    """

    number: int
    start: Offset
    master: str | None = field(default=None, compare=False)
    since_us: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"epoch {self.number} from {self.start} on"


Epochs = tuple[Epoch, ...]
"""Epochs of one log, oldest first; numbers grow, starts do not fall."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two histories part: up to `common` they are the same; from there the replica holds `ours` up to `position`.

    `common` is None if the master's epochs, whose log ends at `maximum`, include none of the replica's.
    """

    common: Offset | None
    position: Offset
    ours: Epoch
    theirs: Epoch | None
    maximum: Offset

    @property
    def cause(self) -> str:
        """Describe the difference, with both epochs."""
        if self.common is None:
            return f"the master's epochs begin with {self.theirs or 'none'}, the replica's end with {self.ours}"
        if self.theirs is None:
            return f"the replica has {self.ours}, up to {self.position}; the master's log ends at {self.maximum}"
        return f"the replica has {self.ours}, up to {self.position}; the master has {self.theirs}"

    @property
    def condition(self) -> Condition:
        return Condition.EPOCHS_CONTRADICT if self.common is None else Condition.FAILED_OVER

    def error(self) -> LogtwinError:
        kind = EpochsContradict if self.common is None else FailedOver
        return kind(
            self.condition.cause.rstrip("."),
            offset=self.position if self.common is None else self.common,
            expected=f"the epochs of the replica, up to {self.position}",
            found=self.cause,
            hint=self.condition.hint,
        )


def parting(ours: Epochs, position: Offset, theirs: Epochs, maximum: Offset) -> Parting | None:
    """Find where a replica at `position` and a master up to `maximum` part; None if `theirs` continue `ours`.

    None also if the replica knows no epochs: then the bytes have to tell.
    """
    mine = below(ours, position)
    if not mine:
        return None
    ends = dict(_with_ends(theirs, maximum))
    for epoch, end in reversed(_with_ends(mine, position)):
        if epoch not in ends:
            continue
        common = min(end, ends[epoch])
        if common >= position:
            return None
        first = next((one for one in mine if one.start >= common), epoch)
        return Parting(common, position, first, next((one for one in theirs if one.start >= common), None), maximum)
    return Parting(None, position, mine[-1], theirs[0] if theirs else None, maximum)


def below(epochs: Epochs, end: Offset) -> Epochs:
    return tuple(epoch for epoch in epochs if epoch.start < end)


def seen(known: Epochs, reported: Iterable[Epoch], now_us: int) -> Epochs:
    """Return what is known after a master has `reported` its epochs, which continue the `known` ones."""
    before = {epoch: epoch for epoch in known}
    found = {epoch: before.get(epoch, replace(epoch, since_us=now_us)) for epoch in reported}
    return tuple(found.values())[-KEPT:] if found else known


def _with_ends(epochs: Sequence[Epoch], end: Offset) -> list[tuple[Epoch, Offset]]:
    ends = [after.start for _, after in pairwise(epochs)]
    return list(zip(epochs, [*ends, end][: len(epochs)], strict=True))
