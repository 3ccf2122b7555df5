"""Epochs of elected masters, and where two histories of one log part. Pure.

A group that elects its master numbers the elections. Each master appends from where its log ended when it was elected,
so a list of (number, start) says of every byte which master wrote it, and two logs of one group are the same up to the
end of the last epoch that both lists have. That is how a slave of RocketMQ finds where to cut its log
(`AutoSwitchHAClient.doTruncate`), and how a replica here does.

What a replica holds of a list is below its position, as far as it has seen the epochs (`KEPT`): each with the address
of its master, where that was the one that was read from, and when it was first seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from sources.errors import EpochsContradict, FailedOver, LogtwinError
from sources.loss import Condition
from sources.offsets import Offset

KEPT: Final = 100
"""How many epochs a replica knows: the newest. A master that shares none of these is another one."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The time of one elected master: its records start at offset `start`, and end where the next epoch's start.

    `since_us` is when a replica has first seen it, in microseconds since 1970, UTC.
    """

    number: int
    start: Offset
    master: str | None = field(default=None, compare=False)
    since_us: int | None = field(default=None, compare=False)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Epoch:
        return cls(**values)

    def __str__(self) -> str:
        return f"epoch {self.number} from {self.start} on"


Epochs = tuple[Epoch, ...]
"""Oldest first; numbers grow, starts do not fall."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Up to `common` the master's history is the replica's, which holds `ours` from there up to `position`.

    `common` is None where the master's epochs, which end at `maximum`, have none of the replica's.
    """

    common: Offset | None
    position: Offset
    ours: Epoch
    theirs: Epoch | None
    maximum: Offset

    @property
    def cause(self) -> str:
        """What it is, with both epochs."""
        if self.common is None:
            return f"the master's epochs begin with {self.theirs or 'none'}, the replica's end with {self.ours}"
        if self.theirs is None:
            return f"the replica has {self.ours}, up to {self.position}; the master's log ends at {self.maximum}"
        return f"the replica has {self.ours}, up to {self.position}; the master has {self.theirs}"

    @property
    def condition(self) -> Condition:
        return Condition.EPOCHS_CONTRADICT if self.common is None else Condition.FAILED_OVER

    def error(self) -> LogtwinError:
        """What to raise."""
        kind = EpochsContradict if self.common is None else FailedOver
        return kind(
            self.condition.cause.rstrip("."),
            offset=self.position if self.common is None else self.common,
            expected=f"the epochs of the replica, up to {self.position}",
            found=self.cause,
            hint=self.condition.hint,
        )


def parting(ours: Epochs, position: Offset, theirs: Epochs, maximum: Offset) -> Parting | None:
    """Where a replica at `position` and a master whose log ends at `maximum` part; None where `ours` go on in `theirs`.

    Also None of a replica that knows no epochs: its bytes have to tell.
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
    """Those that begin below `end`."""
    return tuple(epoch for epoch in epochs if epoch.start < end)


def seen(known: Epochs, reported: Iterable[Epoch], now_us: int) -> Epochs:
    """What is known once a master has `reported` its own, which go on where `known` end."""
    before = {epoch: epoch for epoch in known}
    found = {epoch: before.get(epoch, replace(epoch, since_us=now_us)) for epoch in reported}
    return tuple(found.values())[-KEPT:] if found else known


def _with_ends(epochs: Sequence[Epoch], end: Offset) -> list[tuple[Epoch, Offset]]:
    ends = [after.start for _, after in pairwise(epochs)]
    return list(zip(epochs, [*ends, end][: len(epochs)], strict=True))
