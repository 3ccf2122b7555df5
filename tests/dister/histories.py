"""Random histories of two nodes, of which one leads, and of the replica of whichever leads.

A history is a list of drawn steps; the same list does the same. The nodes do what dister's do: a failed write may live
on the other one alone, what one wrote last may never reach the other, and whoever loses an election takes back what the
other does not have. Nodes share a prefix, and have tails of their own behind it.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import strategies as st

from sources.dister.embedded.leader_log import Change
from sources.errors import LogtwinError
from tests.dister.odd_leader import OddLeader
from tests.dister.twin import Killed, Twin, dying_after

KEYS: Final = ("a", "b", "c", "d", "e")
STEPS: Final = (
    "write", "write", "write many", "fail", "fail on the other", "reach the other", "torn", "lose an election",
    "switch", "replicate", "replicate", "die", "die",
)  # fmt: skip


@dataclass(frozen=True)
class Move:
    """One step, and a number for whatever it has to choose."""

    name: str
    chance: int


def histories(most: int) -> st.SearchStrategy[list[Move]]:
    move = st.builds(Move, st.sampled_from(STEPS), st.integers(0, 999))
    return st.lists(move, min_size=most // 2, max_size=most)


@dataclass
class History:
    """One of them, under way: `leading` is the node that leads, and that the replica reads."""

    twin: Twin
    leading: OddLeader
    other: OddLeader
    done: list[str] = field(default_factory=list)

    def run(self, moves: Sequence[Move]) -> None:
        """Everything, and the proof at the end. Raises AssertionError telling the whole history."""
        try:
            self._write(0)
            self._reach_the_other(0)
            for move in moves:
                self.done.append(f"{move.name} {move.chance}")
                self._steps()[move.name](move.chance)
            self._settle()
        except (AssertionError, LogtwinError) as error:
            raise AssertionError("\n  ".join([*self.done, repr(error)])) from error

    def _steps(self) -> dict[str, Callable[[int], None]]:
        return {
            "write": self._write,
            "write many": self._write_many,
            "fail": lambda chance: self._fail(chance, reaches=False),
            "fail on the other": lambda chance: self._fail(chance, reaches=True),
            "reach the other": self._reach_the_other,
            "torn": self._torn,
            "lose an election": self._lose_an_election,
            "switch": self._switch,
            "replicate": lambda chance: self._twin().replicate(max_entries_per_trigger=2 + chance % 20),
            "die": self._die,
        }

    def _write(self, chance: int) -> None:
        self.leading.write(change_of(chance))

    def _write_many(self, chance: int) -> None:
        self.leading.write_many(change_of(number) for number in range(chance, chance + 1 + chance % 40))

    def _fail(self, chance: int, *, reaches: bool) -> None:
        entry = self.leading.fail(change_of(chance))
        if reaches:
            self.other.follow([entry])

    def _reach_the_other(self, _chance: int) -> None:
        """As catch-up does: the other one takes back what it has of its own, and follows."""
        follow(self.other, self.leading)

    def _torn(self, chance: int) -> None:
        """A line that stops somewhere. Seen by the replica like this, it is completed, or dropped with the node."""
        self.leading.append_torn(change_of(chance), size_bytes=1 + chance % 15)
        self._twin().replicate()
        if chance % 2:
            self.leading.complete_torn()
        else:
            with OddLeader(self.leading.folder) as begun_again:
                assert begun_again.last_id == self.leading.last_id

    def _lose_an_election(self, _chance: int) -> None:
        """The node stays where the replica reads it, and its log becomes the other one's."""
        follow(self.leading, self.other)

    def _switch(self, _chance: int) -> None:
        self.leading, self.other = self.other, self.leading

    def _die(self, chance: int) -> None:
        """A job is killed after one of its steps."""
        with suppress(Killed):
            self._twin().replicate(dying_after(1 + chance % 6), max_entries_per_trigger=5)

    def _twin(self) -> Twin:
        return replace(self.twin, folder=self.leading.folder)

    def _settle(self) -> None:
        """The leader is quiet, and one job brings all that there is."""
        self.leading.write({"last": "write"})
        twin = self._twin()
        twin.replicate()
        twin.assert_equal()


def follow(node: OddLeader, leader: OddLeader) -> None:
    """Make the node's log the leader's, as a follower does."""
    pairs = itertools.zip_longest(node.entries(), leader.entries())
    common = 0
    for mine, theirs in pairs:
        if mine is None or theirs is None or mine.line != theirs.line:
            break
        common = mine.id
    node.truncate_to(common)
    node.follow(leader.entries(common))


def change_of(chance: int) -> Change:
    key = KEYS[chance % len(KEYS)]
    if chance % 7 == 0:
        return [key, KEYS[chance % 3]]
    return {key: f"value {chance}", KEYS[chance % 4]: "too"}
