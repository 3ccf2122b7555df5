"""Everything that goes wrong, as one small tree.

::

    LogtwinError                    facts as attributes; the message is built from them
    ├── ConfigurationError          the operator's: a key, a value, a path                         exit 2
    │   └── QueryError              SQL that is wrong, or more than reads
    ├── MasterError                 the master, or the way to it                                   exit 3
    │   ├── MasterUnreachable       no connection, or it broke; a retry can help
    │   │   └── NobodyListens       nothing is at any of the addresses that were given; a retry can help
    │   ├── MasterSilent            connected, and what was asked for does not come; a retry can help
    │   ├── MasterRefused           it answers that it will not; a retry can help, it may be starting
    │   ├── AccessDenied            it does not know us, or does not allow what was asked for
    │   ├── MasterReplaced          another history at its address, in mid-reading; a retry proves whose it is
    │   ├── ProtocolViolation       it said something its protocol forbids
    │   └── OffsetOutOfRange        the replica wants what the master does not hold
    │       ├── BelowMinimum        retention overtook the replica
    │       └── AboveMaximum        the master lost its tail, or is another one
    ├── LogError                    the log's bytes are not what a log's bytes can be              exit 4
    │   ├── CorruptRecord           a record that contradicts itself or its place
    │   │   └── ChecksumMismatch    a body that is not what its checksum was made of
    │   ├── SegmentError            a segment file that is short or misnamed
    │   │   └── MissingSegment      a file that should be between two others
    │   ├── UnfitMessage            a message that a typed table cannot take, and is not to pass
    │   ├── Rewritten               the master has other bytes where the replica has some
    │   └── Recreated               the master's log began anew
    └── ReplicaError                the replica's side                              exit 5; 6 where a retry can help
        ├── Gap                     the batch starts above the position
        ├── CoverageError           what the tasks read is not what the batch asked for
        ├── WorkerLost              Spark lost a Python process; a retry can help
        ├── StorageUnreachable      the tables' storage does not answer, or refuses for now; a retry can help
        ├── RegistryUnreachable     the registry of schemas does not answer, or refuses for now; a retry can help
        ├── TakenOver               another job writes this log
        ├── AlreadyRunning          a job was to start while another one replicates its log; or a verb beside one
        ├── NotAlone                another connection of this replica may be counted; a retry can help
        ├── RepairPending           a repair was begun and not brought to its end
        └── Divergent               replica and master are not equal

Tasks and the planner run in other processes, and Spark hands only text across: `LogtwinError.token` packs an error
into that text and `find_error` unpacks it, so the command line can say what happened instead of showing a traceback.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

_TOKEN = re.compile(r"logtwin-error:([A-Za-z0-9_=-]+):")


class LogtwinError(Exception):
    """What happened, where, what was expected and found, and what the operator can do.

    `is_transient` says whether the same call may succeed later without anybody's help.
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
        super().__init__(problem)
        self.problem = problem
        self.log = None if log is None else str(log)
        self.offset = offset
        self.expected = None if expected is None else str(expected)
        self.found = None if found is None else str(found)
        self.hint = hint

    def __str__(self) -> str:
        where = self.log or ""
        if self.offset is not None:
            where = f"{where} at offset {self.offset}".strip()
        message = f"{where}: {self.problem}" if where else self.problem
        if self.expected is not None:
            message += f"; expected {self.expected}"
        if self.found is not None:
            message += f"{',' if self.expected is not None else ';'} found {self.found}"
        return f"{message}. {self.hint}" if self.hint else message

    def facts(self) -> dict[str, Any]:
        """The error as JSON-ready values; `error_from` is the way back."""
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
        """The same error naming its log, for code that reads bytes without knowing whose they are."""
        return error_from({**self.facts(), "log": self.log or str(log)})

    def of(self, log: object) -> LogtwinError:
        """The same error as that of `log`, where it met several."""
        return error_from({**self.facts(), "log": str(log)})

    def token(self) -> str:
        """The error as one word that survives being quoted in a traceback."""
        packed = base64.urlsafe_b64encode(json.dumps(self.facts()).encode()).decode()
        return f"logtwin-error:{packed}:"

    def __reduce__(self) -> tuple[Any, ...]:
        return error_from, (self.facts(),)


class ConfigurationError(LogtwinError):
    """A key, value or path of the operator's."""

    exit_code = 2


class QueryError(ConfigurationError):
    """SQL that is wrong, or does more than read."""


class MasterError(LogtwinError):
    """The master, or the way to it."""

    exit_code = 3


class MasterUnreachable(MasterError):
    """No connection, or it broke."""

    is_transient = True


class NobodyListens(MasterUnreachable):
    """At none of the addresses that were given: they are wrong, or nothing has been started there yet."""


class MasterSilent(MasterError):
    """Connected, and what was asked for does not come."""

    is_transient = True


class MasterRefused(MasterError):
    """It answers that it will not. A broker that is starting or ending does."""

    is_transient = True


class AccessDenied(MasterError):
    """It does not know us, or does not allow what was asked for. Asking again does not help: somebody must allow it."""


class MasterReplaced(MasterError):
    """Another history than a moment ago answers at its address. Whether the replica is of it, the next proof says."""

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
    """The log's bytes are not what a log's bytes can be."""

    exit_code = 4


class CorruptRecord(LogError):
    """A record that contradicts itself or its place."""


class ChecksumMismatch(CorruptRecord):
    """A body that is not what its checksum was made of."""


class SegmentError(LogError):
    """A segment file that is short or misnamed."""


class MissingSegment(SegmentError):
    """A file that should be between two others."""


class UnfitMessage(LogError):
    """A message that a typed table cannot take, where it is told to stop at such."""


class Rewritten(LogError):
    """The master has other bytes where the replica has some."""


class FailedOver(Rewritten):
    """Another master was elected, which does not have all that was replicated."""


class EpochsContradict(LogError):
    """The master's epochs are none that the replica knows, or not what its bytes say."""


class Recreated(LogError):
    """The master's log began anew: it is empty, or nothing of it is what was replicated."""


class ReplicaError(LogtwinError):
    """The replica's side."""

    exit_code = 5


class Gap(ReplicaError):
    """The batch starts above the position."""


class CoverageError(ReplicaError):
    """What the tasks read is not what the batch asked for."""


class WorkerLost(ReplicaError):
    """A Python process of Spark's has ended, or did not begin in time."""

    exit_code = 6
    is_transient = True


class StorageUnreachable(ReplicaError):
    """The storage of the tables does not answer, or refuses for now. So does a full disk."""

    exit_code = 6
    is_transient = True


class RegistryUnreachable(ReplicaError):
    """The registry of schemas does not answer, or refuses for now."""

    exit_code = 6
    is_transient = True


class RowsReplaced(ReplicaError):
    """A log went back of which a typed table has rows by their key: what these had replaced is not known any more."""


class TakenOver(ReplicaError):
    """Another job writes this log."""


class AlreadyRunning(ReplicaError):
    """A job was to start while another one replicates its log; or a verb, where the master would count both."""


class NotAlone(ReplicaError):
    """A master that counts connections may count another one of this replica, for now."""

    exit_code = 6
    is_transient = True


class RepairPending(ReplicaError):
    """A repair was begun and not brought to its end."""


class WayBackPending(RepairPending):
    """One that a fail-over has demanded: whoever replicates the log next brings it to its end."""


class Divergent(ReplicaError):
    """Replica and master are not equal."""


def error_types(root: type[LogtwinError] = LogtwinError) -> dict[str, type[LogtwinError]]:
    """Name -> type, of `root` and everything below it."""
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(error_types(child))
    return found


def error_from(facts: dict[str, Any]) -> LogtwinError:
    """`LogtwinError.facts` -> the error. A type this version does not know becomes a LogtwinError."""
    facts = dict(facts)
    kind = error_types().get(facts.pop("type"), LogtwinError)
    return kind(facts.pop("problem"), **facts)


def of_log(
    error: Exception, log: object, problem: str = "something unforeseen failed", *, offset: int | None = None
) -> LogtwinError:
    """`error`, met with one of several logs, as that log's alone: also what nobody thought of ends no other one."""
    if isinstance(error, LogtwinError):
        return error.at(log)
    found = "".join(traceback.format_exception(error))[-2000:].strip()
    return LogtwinError(problem, log=log, offset=offset, found=found, hint="This is a defect: please report it.")


@contextmanager
def naming(log: object) -> Iterator[None]:
    """What goes wrong inside, with `log` named in it."""
    try:
        yield
    except LogtwinError as error:
        raise error.at(log) from error


@contextmanager
def across_processes() -> Iterator[None]:
    """Spark carries only an error's text out of its processes: what goes wrong inside is put into that."""
    try:
        yield
    except LogtwinError as error:
        raise RuntimeError(f"{error} {error.token()}") from error


@contextmanager
def told_by_spark() -> Iterator[None]:
    """As `across_processes`, where nobody of ours unpacks it: people read what Spark makes of it.

    It quotes a Python error with its stack, and with those of all that led to it; the message is its last line.
    """
    try:
        yield
    except LogtwinError as error:
        raise error_from(error.facts()) from None


def find_error(text: str) -> LogtwinError | None:
    """The last error packed into `text` by `LogtwinError.token`, or None where there is none."""
    tokens: list[str] = _TOKEN.findall(text)
    if not tokens:
        return None
    return error_from(json.loads(base64.urlsafe_b64decode(tokens[-1])))
