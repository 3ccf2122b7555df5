"""What Kernel leaves to do after a commit: a checksum, and each tenth time a checkpoint.

Nothing depends on it but how long it takes to open a table, so it comes after the acknowledgement, and may fail. A
checkpoint describes a version that is committed, whatever is committed meanwhile. It takes a second of a large table,
for which no batch should wait: a thread writes those of all tables of a process, one after the other. If a newer one
of a table comes before its turn, the older one is left out. A kill leaves a table without it until the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from sinks.storage.errors import told

# Kernel's names.
_CHECKPOINT: Final = "CHECKPOINT"
_CHECKSUM: Final = "CHECKSUM_SIMPLE"
_CHECKSUM_OF_ALL: Final = "CHECKSUM_FULL"

_CHECKED_DOMAINS: Final = 100
_TRUSTED_S: Final = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Hook:
    version: int
    kind: str
    java: Any


class Hooks:
    """The hooks of commits to the table at `path`, until they are run. One thread adds and runs them.

    `domains` is about how many domains the newest commit has.
    """

    def __init__(self, engine: Any, path: str, *, are_remote: bool) -> None:
        self._engine = engine
        self._path = path
        self._are_remote = are_remote
        self._left: list[_Hook] = []
        self._checksum_again_at_s = 0.0
        self._has_news = False
        self.domains = 0

    def add(self, version: int, hooks: Iterable[Any]) -> None:
        """Keep those of the commit of `version` that are worth it: all, but a checksum made from all of the table only
        with a checkpoint.

        Kernel wants that where the version before has none, because another log's run wrote that one just now. A
        version can do without, and the cost grows with the table.

        Where each file is requests (five a checksum), no other is worth it, either; but once the one of all files is. A
        snapshot that was read with a checksum hands it on to those that are made of it in memory; one that has none
        reads every version since the last checkpoint, for each commit.

        A checksum lists the metadata of all domains, and Kernel takes time by the square of their number: of a thousand
        logs it would take longer than their commit. A table of so many has none.
        """
        found = {one.kind: one for one in (_Hook(version, str(hook.getType()), hook) for hook in hooks)}
        if self.domains > _CHECKED_DOMAINS:
            found.pop(_CHECKSUM, None)
            found.pop(_CHECKSUM_OF_ALL, None)
        elif _CHECKPOINT not in found:
            if self._are_remote:
                found.pop(_CHECKSUM, None)
            # now and then: of a table that several runs write each commit of ours comes after another's
            if not self._are_remote or time.monotonic() < self._checksum_again_at_s:
                found.pop(_CHECKSUM_OF_ALL, None)
        self._left += sorted(found.values(), key=lambda hook: hook.kind == _CHECKPOINT)  # which reads the checksum

    def run(self, *, checkpoint_aside: bool) -> None:
        """Run the hooks; with `checkpoint_aside` those of a checkpoint in the thread for these. A failure is logged."""
        left, self._left = self._left, []
        if checkpoint_aside and any(hook.kind == _CHECKPOINT for hook in left):
            _aside.leave(self._path, partial(self._run, left))
        else:
            self._run(left)

    def take_news(self) -> bool:
        """Whether, since the last call, something was written that makes it worth reading the table anew."""
        if not self._has_news:
            return False
        self._has_news = False
        return True

    def _run(self, hooks: Sequence[_Hook]) -> None:
        for hook in hooks:
            try:
                hook.java.threadSafeInvoke(self._engine)
            except Exception as error:  # noqa: BLE001 - whatever it is, the commit stands
                _log.warning(
                    "version %d of the table %s is committed, but has no %s: %s. Nothing is lost; until another has "
                    "it, to open the table takes longer. Check that its storage can be written; the next tenth commit "
                    "tries again, or logtwin maintain",
                    hook.version, self._path, "checkpoint" if hook.kind == _CHECKPOINT else "checksum",
                    _text(error).strip().partition("\n\tat ")[0],
                )  # fmt: skip
                continue
            if hook.kind == _CHECKSUM_OF_ALL and self._are_remote:
                self._checksum_again_at_s = time.monotonic() + _TRUSTED_S
                self._has_news = True  # the checksum
            elif hook.kind == _CHECKPOINT and self.domains > _CHECKED_DOMAINS:
                self._has_news = True  # without a checksum each version since an older checkpoint would be read


def _text(error: Exception) -> str:
    """Say what failed: of a call of Java its innermost cause, not the name that Py4J gave the call."""
    try:
        return told(error).splitlines()[-1] if isinstance(error, Py4JJavaError) else str(error)
    except Exception:  # noqa: BLE001 - the text of a Java exception is a question to a JVM that may be gone
        return repr(error)


class _Aside:
    """A thread that writes one checkpoint after the other: of each table the newest that waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards what follows
        self._waiting: dict[str, Callable[[], None]] = {}
        self._is_busy = False
        self._thread: threading.Thread | None = None

    def leave(self, path: str, work: Callable[[], None]) -> None:
        with self._changed:
            self._waiting[path] = work
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="writes checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                work = self._waiting.pop(next(iter(self._waiting)))
                self._is_busy = True
            work()

    def wait(self, within_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_busy, within_s)


_aside: Final = _Aside()


def wait_for_checkpoints(within_s: float) -> bool:
    """Wait until no checkpoint is left to be written aside. Returns False if that took too long."""
    return _aside.wait(within_s)
