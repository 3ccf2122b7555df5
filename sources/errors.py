"""The tree of everything that can go wrong.

::

    LogtwinError                    facts as attributes; the message is built from them
    ├── ConfigurationError          a key, a value or a path of the operator's is wrong            exit 2
    │   └── QueryError              SQL that is wrong, or does more than read
    ├── MasterError                 the master, or the way to it                                   exit 3
    │   ├── MasterUnreachable       no connection, or it broke; a retry can help
    │   │   └── NobodyListens       nothing listens at any of the given addresses; a retry can help
    │   ├── MasterSilent            connected, but the answer does not come; a retry can help
    │   ├── MasterRefused           it refuses the request; a retry can help, it may be starting
    │   ├── AccessDenied            it does not know us, or does not allow the request
    │   ├── MasterReplaced          its history changed while it was read; a retry proves which one the replica has
    │   ├── ProtocolViolation       it said something its protocol forbids
    │   └── OffsetOutOfRange        the replica wants what the master does not hold
    │       ├── BelowMinimum        retention overtook the replica
    │       └── AboveMaximum        the master lost its tail, or is another one
    ├── LogError                    the bytes cannot be those of a log                             exit 4
    │   ├── CorruptRecord           a record that contradicts itself or its place
    │   │   ├── ChecksumMismatch    a body that does not match its checksum
    │   │   └── UnprovenEnd         the newest bytes of a log, and nothing sound behind them; a retry can help (exit 3)
    │   ├── SegmentError            a segment file that is short or misnamed
    │   │   └── MissingSegment      a missing file between two others
    │   ├── UnfitMessage            a message that a typed table cannot take and must not pass over
    │   ├── Rewritten               the master has other bytes than the replica at the same offsets
    │   └── Recreated               the master's log began anew
    └── ReplicaError                the replica's side                              exit 5, or 6 if a retry can help
        ├── Gap                     the batch starts above the position
        ├── CoverageError           the tasks did not read what the batch asked for
        ├── WorkerLost              Spark lost a Python process; a retry can help
        ├── StorageUnreachable      the tables' storage does not answer, or refuses for now; a retry can help
        ├── RegistryUnreachable     the schema registry does not answer, or refuses for now; a retry can help
        ├── OutOfMemory             a worker has not enough memory for one record or batch
        ├── TakenOver               another job writes this log
        ├── AlreadyRunning          another job replicates this log, so neither a job nor some verbs may start
        ├── NotAlone                another connection of this replica may be counted; a retry can help
        ├── RepairPending           a repair was begun and not finished
        └── Divergent               replica and master differ

Tasks and the planner run in other processes, and Spark hands only text across: `LogtwinError.token` packs an error
into that text and `find_error` unpacks it, so the command line can say what happened instead of showing a traceback.
"""

from __future__ import annotations

import base64
import errno
import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from sources.readable import visible

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""The numbers by which an operating system says that a disk or a quota is full."""

_TOKEN = re.compile(r"logtwin-error:([A-Za-z0-9_=-]+):")
_MOST_CHARACTERS = 4000  # of one fact: a master may answer with megabytes, and errors are shown, logged and sent on


class LogtwinError(Exception):
    """Any error of logtwin: what happened, where, what was expected and found, and what the operator can do.

    Its text is one line, whatever a master or a file has said; the attributes have that as it was. `is_transient` says
    whether the same call may succeed later without anybody's help.
    """

    exit_code: ClassVar[int] = 1
    is_transient: ClassVar[bool] = False

    def __init__(
        self,
        problem: str,
        *,
        log: object = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.problem = _cut(problem)
        super().__init__(self.problem)
        self.log = None if log is None else str(log)
        self.offset = offset
        self.expected = None if expected is None else _cut(str(expected))
        self.found = None if found is None else _cut(str(found))
        self.hint = None if hint is None else _cut(hint)

    def __str__(self) -> str:
        where = self.log or ""
        if self.offset is not None:
            where = f"{where} at offset {self.offset}".strip()
        message = f"{where}: {self.problem}" if where else self.problem
        if self.expected is not None:
            message += f"; expected {self.expected}"
        if self.found is not None:
            message += f"{',' if self.expected is not None else ';'} found {self.found}"
        return visible(f"{message}. {self.hint}" if self.hint else message)

    def facts(self) -> dict[str, Any]:
        """Return the error as JSON-ready values; `error_from` is the inverse."""
        return {
            "type": type(self).__name__,
            "problem": self.problem,
            "log": self.log,
            "offset": self.offset,
            "expected": self.expected,
            "found": self.found,
            "hint": self.hint,
        }

    def at(self, log: object) -> LogtwinError:
        """Return the same error with its log named, for code that reads bytes without knowing their log."""
        return error_from({**self.facts(), "log": self.log or str(log)})

    def of(self, log: object) -> LogtwinError:
        """Return the same error for `log`, if it concerned several logs."""
        return error_from({**self.facts(), "log": str(log)})

    def token(self) -> str:
        """Return the error as one word that survives being quoted in a traceback."""
        packed = base64.urlsafe_b64encode(json.dumps(self.facts()).encode()).decode()
        return f"logtwin-error:{packed}:"

    def __reduce__(self) -> tuple[Any, ...]:
        return error_from, (self.facts(),)


def _cut(text: str) -> str:
    """Return `text`; of one that is too long, its beginning and its end."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2 - 50
    return f"{text[:half]} … ({len(text):,} characters) … {text[-half:]}"


class ConfigurationError(LogtwinError):
    """A key, value or path of the operator's is wrong."""

    exit_code = 2


class NoSuchTopic(ConfigurationError):
    """The brokers have no topic of that name: it was deleted, or the configuration means another one."""


class QueryError(ConfigurationError):
    """The SQL is wrong, or does more than read."""


class MasterError(LogtwinError):
    """The master, or the way to it, is at fault."""

    exit_code = 3


class MasterUnreachable(MasterError):
    """There is no connection to the master, or it broke."""

    is_transient = True


class NobodyListens(MasterUnreachable):
    """Nothing listens at any of the given addresses: they are wrong, or nothing has been started there yet."""


class MasterSilent(MasterError):
    """The master is connected, but the answer does not come."""

    is_transient = True


class MasterRefused(MasterError):
    """The master refuses the request, as a broker does that is starting or stopping."""

    is_transient = True


class AccessDenied(MasterError):
    """The master does not know us, or does not allow the request. A retry does not help: somebody must allow it."""


class MasterReplaced(MasterError):
    """Another history answers at the master's address than a moment ago. The next proof says which the replica has."""

    is_transient = True


class ProtocolViolation(MasterError):
    """The master said something its protocol forbids."""


class OffsetOutOfRange(MasterError):
    """The replica wants what the master does not hold."""


class BelowMinimum(OffsetOutOfRange):
    """Retention overtook the replica."""


class AboveMaximum(OffsetOutOfRange):
    """The master lost its tail, or is another one."""


class LogError(LogtwinError):
    """The bytes cannot be those of a log."""

    exit_code = 4


class CorruptRecord(LogError):
    """A record contradicts itself or its place."""


class ChecksumMismatch(CorruptRecord):
    """A body does not match its checksum."""


class UnprovenEnd(CorruptRecord):
    """The newest bytes of a log are not sound, and nothing sound follows: it is not known yet to go on behind them.

    Whoever writes the log may still write them, or take them back. So this is no loss, whatever `on_loss` says, and
    whoever started the job may start it again.
    """

    exit_code = MasterError.exit_code
    is_transient = True


class SegmentError(LogError):
    """A segment file is short or misnamed."""


class MissingSegment(SegmentError):
    """A file between two others is missing."""


class UnfitMessage(LogError):
    """A typed table cannot take a message, and is configured to stop at such a message."""


class Rewritten(LogError):
    """The master has other bytes than the replica at the same offsets."""


class FailedOver(Rewritten):
    """Another master was elected, which does not have everything that was replicated."""


class EpochsContradict(LogError):
    """The master's epochs are not those that the replica knows, or contradict its bytes."""


class Recreated(LogError):
    """The master's log began anew: it is empty, or has nothing of what was replicated."""


class ReplicaError(LogtwinError):
    """The replica's side is at fault."""

    exit_code = 5


class Gap(ReplicaError):
    """The batch starts above the position."""


class CoverageError(ReplicaError):
    """The tasks did not read what the batch asked for."""


class WorkerLost(ReplicaError):
    """One of Spark's Python processes has ended, or did not begin in time."""

    exit_code = 6
    is_transient = True


class StorageUnreachable(ReplicaError):
    """The storage of the tables does not answer, or refuses for now. A full disk counts as this, too."""

    exit_code = 6
    is_transient = True


class RegistryUnreachable(ReplicaError):
    """The schema registry does not answer, or refuses for now."""

    exit_code = 6
    is_transient = True


class RowsReplaced(ReplicaError):
    """A log went back that a typed table has keyed rows of: the rows which these replaced are not known any more."""


class OutOfMemory(ReplicaError):
    """A worker has not enough memory for one record or batch. A retry would end there again."""


class TakenOver(ReplicaError):
    """Another job writes this log."""


class AlreadyRunning(ReplicaError):
    """Another job replicates this log, so no second one may start; nor a verb, if the master would count both."""


class HeldElsewhere(AlreadyRunning):
    """Another job has a log of this job's shard, which waits for it."""

    exit_code = 6
    is_transient = True


class NotAlone(ReplicaError):
    """A master that counts connections may still count another one of this replica."""

    exit_code = 6
    is_transient = True


class RepairPending(ReplicaError):
    """A repair was begun and not finished."""


class WayBackPending(RepairPending):
    """A fail-over demands a repair: the job that replicates the log next finishes it."""


class Divergent(ReplicaError):
    """Replica and master differ."""


def error_types(root: type[LogtwinError] = LogtwinError) -> dict[str, type[LogtwinError]]:
    """Return `root` and everything below it, by name."""
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(error_types(child))
    return found


def error_from(facts: dict[str, Any]) -> LogtwinError:
    """Return the error with these `LogtwinError.facts`. A type that this version does not know gives a LogtwinError."""
    facts = dict(facts)
    kind = error_types().get(facts.pop("type"), LogtwinError)
    return kind(facts.pop("problem"), **facts)


def of_log(
    error: Exception, log: object, problem: str = "something unforeseen failed", *, offset: int | None = None
) -> LogtwinError:
    """Return `error` as the error of this one log, so that even an unforeseen failure does not end the other logs."""
    if isinstance(error, LogtwinError):
        return error.at(log)
    found = "".join(traceback.format_exception(error))[-2000:].strip()
    return LogtwinError(problem, log=log, offset=offset, found=found, hint="This is a defect: please report it.")


def unnamed(error: object, log: object) -> str:
    """What an error says, for a line that has named its log already."""
    return str(error).removeprefix(f"{log}: ")


@contextmanager
def naming(log: object) -> Iterator[None]:
    """Add `log` to each error that is raised inside."""
    try:
        yield
    except LogtwinError as error:
        raise error.at(log) from error


@contextmanager
def across_processes() -> Iterator[None]:
    """Put errors raised inside into text, because Spark carries nothing else out of its processes."""
    try:
        yield
    except LogtwinError as error:
        raise RuntimeError(f"{error} {error.token()}") from error


@contextmanager
def told_by_spark() -> Iterator[None]:
    """Like `across_processes`, where no code of ours unpacks the error: people read what Spark makes of it.

    Spark quotes a Python error with its stack and those of its causes; the message is the last line.
    """
    try:
        yield
    except LogtwinError as error:
        raise error_from(error.facts()) from None


def find_error(text: str) -> LogtwinError | None:
    """Return the last error that `LogtwinError.token` packed into `text`, or None.

    The text may quote what others wrote, so a word that only looks like a packed error is none.
    """
    found = map(_unpacked, reversed(_TOKEN.findall(text)))
    return next((error for error in found if error is not None), None)


def _unpacked(token: str) -> LogtwinError | None:
    try:
        return error_from(json.loads(base64.urlsafe_b64decode(token)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
