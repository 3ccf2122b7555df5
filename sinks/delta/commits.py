"""What commits of a table share: attempts after a conflict, one commit for many threads, values known unasked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sinks.delta.kernel import KernelConflict

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")

ATTEMPTS = 40
"""How often a commit is tried. The stream commits each second or oftener, and others have to come between two."""
FIRST_WAIT_S: Final = 1.0
"""How long a log, a partition, a typed table or a catalog first waits until it is tried again."""
_MOST_DOUBLINGS = 64
"""Beyond any wait, and far below the 1,024th, which no float can hold: a master may be away for days."""


def retrying(failure: Callable[[str], Exception]) -> Retrying:
    """Try a commit again after a KernelConflict: at random times, further and further apart, up to a second.

    Call it with the function that looks at the table anew and commits; or iterate it, ``for attempt in retrying(...):
    with attempt: ...``, where the block looks itself. Other errors are raised at once.
    After ATTEMPTS it raises what `failure` makes of that, as the `found` of an error.
    """

    def give_up(state: RetryCallState) -> None:
        conflict = None if state.outcome is None else state.outcome.exception()
        raise failure(f"a conflict at each of {state.attempt_number} attempts: {conflict}") from conflict

    return Retrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        retry=retry_if_exception_type(KernelConflict),
        retry_error_callback=give_up,
    )


def decided_commit(
    on: V,
    commit: Callable[[V], R],
    newest: Callable[[], V],
    decided: Callable[[V], R | None],
    failure: Callable[[str], Exception],
) -> R:
    """Return what `commit` does on version `on`, or after conflicts on the `newest` one, or what has `decided` it.

    A commit that was refused may have landed unheard, and others may have made it pointless. So `decided` is asked of
    each newer version: it returns what became of the commit, raises, or returns None to try again. `failure` is that of
    `retrying`.
    """
    for attempt in retrying(failure):
        with attempt:
            try:
                return commit(on)
            except KernelConflict as refused:
                conflict = refused
            on = newest()
            if (outcome := decided(on)) is not None:
                return outcome
            raise conflict
    raise AssertionError("attempts end in a result or an error")


def doubled_s(first_s: float, tries: int, most_s: float) -> float:
    """How long to wait after `tries` more in vain: `first_s`, twice that, and so on, but `most_s` at most."""
    return min(first_s * 2.0 ** min(tries, _MOST_DOUBLINGS), most_s)


class GroupCommit(Generic[T]):
    """One commit for the wishes of many threads: who comes while it is made waits, and shares the next one.

    Wishes are told apart by identity, and `commit` writes into each what became of it, errors too. What `commit` raises
    ends only the call that made it; the next one takes the others' wishes.
    """

    def __init__(self, commit: Callable[[Sequence[T]], None]) -> None:
        self._commit = commit
        self._turn = threading.Lock()
        self._waiting: list[T] = []  # changed only by calls that are atomic between threads

    def take(self, wanted: T) -> None:
        """Return once `commit` has served `wanted`. From any thread."""
        self._waiting.append(wanted)
        with self._turn:
            if any(one is wanted for one in self._waiting):
                taken = [*self._waiting]
                self._commit(taken)
                del self._waiting[: len(taken)]


class OwnChain(Generic[K, V]):
    """A cache of a table's values, by name, that is valid as long as only this run commits to the table.

    Asking the JVM for the values of many logs takes long. A version that this run has made has the values of the
    version before it, except for those that this run has changed.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[K, V] = {}

    def values(self, version: int, names: Iterable[K], ask: Callable[[Sequence[K]], Mapping[K, V]]) -> dict[K, V]:
        """The values of `names` at `version`: the known ones, and the results of one `ask` for the others."""
        if version != self._version:
            self._version, self._known = version, {}
        wanted = list(names)
        if unknown := [name for name in wanted if name not in self._known]:
            self._known |= ask(unknown)
        return {name: self._known[name] for name in wanted}

    def claimed(self, version: int, values: Mapping[K, V]) -> None:
        """Note that a commit of this run has made `version`, whatever came before, with these `values`."""
        self._version, self._known = version, dict(values)

    def committed(self, on: int, version: int, changed: Mapping[K, V]) -> None:
        """Note that a commit of this run, built on version `on`, has made `version`, with the values `changed`."""
        if on == self._version and version == on + 1:
            self._known.update(changed)
            self._version = version
        else:  # others have committed in between
            self._version, self._known = None, {}
