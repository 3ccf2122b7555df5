"""The logs of one master as a run replicates them: their replicas, one session, one watch, and what was lost.

Before anything is acknowledged, the master is proven to be the one that was replicated: before the first
acknowledgement of a run, and by a session that may meet another master before the first one of each connection. A
master that gains logs, as a topic gains partitions, is asked for them; a log that comes while it is followed is claimed
and begun then. A loss belongs to a log, and is passed or reported there; the logs of a master go on, or stop, together.
A job of a shard has the logs of its share that no other job has; it asks for the rest now and then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from contextlib import suppress
from functools import cached_property
from itertools import count

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.losses import Losses, concerned, explained, mend
from pipeline.job.master_watch import VIEW_EVERY_S, MasterWatch
from pipeline.monitoring.progress import PartitionProgress
from pipeline.monitoring.run_state import FRESH_S
from sinks.batch.group import Group, acknowledge
from sinks.batch.proof import BatchResult
from sinks.batch.replica import Opening, Replica
from sinks.books.topic_states import take_apart, topics_held
from sinks.state.log_state import LogState
from sinks.state.positions import Beginning
from sinks.tables import log_table
from sources.access.spread import Spread
from sources.bounds import LATEST, check_position, resolve_offset
from sources.errors import FailedOver, LogtwinError, MasterRefused, Recreated, RepairPending, TakenOver
from sources.group.standing import Seen
from sources.loss import WayPast, condition_of
from sources.master import EMPTY_QUERY, Holding, LogQuery
from sources.offsets import LogId, Offset, OffsetRange, partition_log, topic_and_number
from sources.registry import FollowedOptions, open_master

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""How often it looks whether another job has let go of what this one waits for."""

_VIEWS = Spread(0.02)  # those of a thousand masters, asked for in one moment, would hold up their first commits
_NOTHING = OffsetRange(Offset(0), Offset(0))


class ReplicatedLogs:
    """The logs of the master that `options` describe. Driver only.

    `replicas` are those that are known so far, by log id; they change from one thread at a time.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        options: FollowedOptions,
        opening: Opening,
        others: Callable[[Iterable[LogId]], Mapping[LogId, str]] = lambda _: {},
    ) -> None:
        """`others` says which of some logs other jobs replicate now, and which job: a shard waits for those."""
        self._spark = spark
        self._config = config
        self._options = options
        self._opening = opening
        self.master = open_master(options)
        self._gains_logs = self.master.traits.gains_logs
        self.watch = MasterWatch(self.master.view, _VIEWS)
        self.session = self.master.open_session(self._prove_in_turn)
        overrules = self.master.traits.overrules
        self.losses = Losses(
            options.on_loss, lambda one, lost: self.group.skip(one, lost), self._mend, overrules=overrules
        )
        self.replicas: Mapping[str, Replica] = {} if self._gains_logs else self._replicas([self.master.id])
        self._shard = config.shard
        self._others = others
        self.elsewhere: Mapping[LogId, str] = {}
        self._claimed: Mapping[LogId, Holding] = {}  # what the master held when the logs were claimed
        self._unanswered: Set[str] = frozenset()  # of which the master could not say what it holds
        self._taken: dict[LogId, tuple[str, float]] = {}  # by whom, and until when it is theirs if nobody sees them
        self._look_again_at_s = 0.0
        self._numbers = 0  # partitions are numbered from 0; this one and later ones may come

    @cached_property
    def group(self) -> Group:
        """A group for work on one log alone, while no batch of the job has it. Made on first use."""
        return Group(self._spark, self._config.warehouse, table=log_table(self.master.id))

    @property
    def states(self) -> dict[LogId, LogState]:
        """The committed state of each log that is open. From any thread."""
        return {one.log_id: one.state for one in self.replicas.values() if one.state is not None}

    def offsets(self) -> dict[str, Offset]:
        states = {log_id: one.state for log_id, one in self.replicas.items()}
        return {at: state.offset for at, state in states.items() if state is not None and state.offset is not None}

    def position(self) -> Offset | None:
        """The sum of the positions; None before the logs are open, and before the first commit."""
        return _sum(self.offsets().values())

    def received(self) -> Offset | None:
        """The sum of the offsets up to which tasks have read and proven; if asked after `position`, never below it."""
        found = (one.received() for one in self.replicas.values() if one.is_open)
        return _sum(at for at in found if at is not None)

    def newest_stored_us(self) -> int | None:
        """When the master stored the newest committed record of the log that is furthest behind, µs since 1970."""
        states = (one.state for one in self.replicas.values())
        found = (state.newest_stored_us for state in states if state is not None)
        return min((at_us for at_us in found if at_us is not None), default=None)

    def partitions(self, offsets: Mapping[str, Offset], told: Mapping[LogId, Offset]) -> dict[int, PartitionProgress]:
        """The progress of each partition that the master or the replica has, at `offsets`; none of a log of its own."""
        if not self._gains_logs:
            return {}
        held, replicas = self.watch.held, self.replicas
        return {
            number: PartitionProgress(
                master_minimum=held[log_id].start if log_id in held else None,
                position=offsets.get(log_id),
                acknowledged=told.get(replicas[log_id].log_id) if log_id in replicas else None,
                master_maximum=held[log_id].end if log_id in held else None,
            )
            for number, log_id in sorted((int(log_id.rpartition("/")[2]), log_id) for log_id in {*held, *offsets})
        }

    # What its master holds

    def hear(self, seen: Seen, turn: int, now_s: float, unlisted: Container[str] = ()) -> None:
        """Take the bounds that the planner has `seen` since the logs were listed for the `turn`-th time, or are not."""
        held = {
            log_id: seen[log_id].bounds
            for log_id in self.watch.held
            if log_id in seen and (seen[log_id].turn == turn or log_id in unlisted)
        }
        while self._gains_logs and (added := seen.get(coming := str(self._coming()))) is not None:
            held[coming] = added.bounds
            self._numbers = topic_and_number(LogId.parse(coming))[1] + 1
        self.watch.hear(held, self.position(), now_s)

    def _coming(self) -> LogId:
        """The next partition that the topic may get, of those in this job's share."""
        numbered = (partition_log(self.master.id, at) for at in count(self._numbers))
        return next(one for one in numbered if self._shard is None or self._shard.has(one))

    def _ask(self, begun: Iterable[LogId] = ()) -> Mapping[LogId, Holding]:
        """Ask the master for the bounds of logs that no other job has. Raises as `Master.poll` does.

        `begun` are logs that are not open yet.
        """
        states, before = self.states, self.watch.held
        asked = dict.fromkeys(begun, EMPTY_QUERY) | {
            one.log_id: LogQuery(
                states[one.log_id].identity if one.log_id in states else None,
                seen_end=before[log_id].end if log_id in before else None,
            )
            for log_id, one in self.replicas.items()
        }
        found = self.master.poll(asked)
        if self._gains_logs:
            self._look_for_others({**dict.fromkeys(asked), **found})
        ours = {log_id: one for log_id, one in found.items() if log_id not in self.elsewhere}
        held = {log_id: one for log_id, one in ours.items() if isinstance(one, Holding)}
        self._unanswered = {str(log_id) for log_id in ours.keys() - held.keys()}
        now_s = time.monotonic()
        self._look_again_at_s = now_s + (LOOK_AGAIN_S if self.elsewhere or self._unanswered else VIEW_EVERY_S)
        self.watch.begin({str(log_id): one.bounds for log_id, one in held.items()}, self.position(), now_s)
        return held

    def _look_for_others(self, log_ids: Collection[LogId]) -> None:
        """Find out which of `log_ids`, all that exist, this job waits for; log once which, and who has each."""
        now_s = time.monotonic()
        wanted = [log_id for log_id in log_ids if str(log_id) not in self.replicas]
        taken = {log_id: who for log_id, (who, until_s) in self._taken.items() if log_id in wanted and now_s < until_s}
        before, self.elsewhere = self.elsewhere, taken | dict(self._others(wanted))
        for log_id, who in self.elsewhere.items():
            if before.get(log_id) != who:
                log.warning("%s is held by %s, and is waited for", log_id, who)
        self._numbers = max((topic_and_number(one)[1] + 1 for one in log_ids), default=self._numbers)

    # A start

    def claim(self, *, waits: bool = False) -> Offset | None:
        """Ask the master, and claim the logs that the replica has. Returns the position. Raises LogtwinError.

        A log of which the master cannot say what it holds is claimed like the others; with `waits`, if it cannot say so
        after a while either: an election may be under way, and nothing is tried again later.
        """
        begun = self._begun() if self._gains_logs and not self.replicas else []
        if waits and begun:
            with suppress(MasterRefused):
                self.master.poll({})
        self._claimed = held = self._ask(begun)
        if self.replicas:
            self._opening.open(*self.replicas.values())
        elif self._gains_logs:
            take_apart(self._spark, self._config.warehouse, self.master.id)
            found = self._replicas(one for one in begun if one not in self.elsewhere)
            if found:
                self._opening.open(*found.values())
            self.replicas = found
        for one in self.replicas.values():
            one.follow()
        identity = self._identity()
        if identity is not None and all(one.identity != identity for one in held.values()):
            self._ask()  # it raises Recreated
        return self.position()

    def _begun(self) -> list[LogId]:
        """The logs of this job that have a position. One that was claimed and has none is new: `add` starts it."""
        claimed = topics_held(self._config.warehouse).get(self.master.id, {})
        begun = (partition_log(self.master.id, at) for at, state in sorted(claimed.items()) if state.offset is not None)
        return [one for one in begun if self._shard is None or self._shard.has(one)]

    def _identity(self) -> str | None:
        """The id of the replicated topic. Raises RepairPending if its partitions belong to different topics."""
        found = sorted({state.identity for state in self.states.values() if state.identity is not None})
        if len(found) > 1:  # the session has one topic: it would acknowledge offsets of the old one to the new one
            raise RepairPending(
                "a repair has come to some of the topic's partitions, and not to all",
                log=self.master.id,
                expected="partitions of one topic",
                found=f"partitions of topics {', '.join(found)}",
                hint=f"logtwin repair --log {self.master.id} --accept-master takes it to its end.",
            )
        return found[0] if found else None

    def resume(self, without: Container[str] = ()) -> Mapping[str, LogtwinError]:
        """After the claim: prove the master, and acknowledge what is committed, of all but the logs `without`.

        Returns the errors of those for which only the others were proven and told. Raises LogtwinError.
        """
        errors: Mapping[LogId, LogtwinError] = {}
        before = self.states.keys()
        if self.has_news:
            self._add(self._claimed)
        answered = {
            log_id: state
            for log_id, state in self.states.items()
            if str(log_id) in self.watch.held and str(log_id) not in without
        }
        if known := {log_id: state.known for log_id, state in answered.items() if state.offset is not None}:
            if self.master.traits.compares_history:
                # where a log has just begun there is nothing to compare
                old = {at: one for at, one in known.items() if at in before or one.offset != answered[at].first}
                errors = self.master.check_history(old) if old else errors
            else:
                with self.session.reading():
                    self._prove_in_turn()
            # What the table holds may be acknowledged at once: the master need not wait for new data.
            proven = known.keys() - errors.keys()
            acknowledge(one for one in self.replicas.values() if one.log_id in proven)
        return {str(log_id): error for log_id, error in errors.items()}

    def _prove_in_turn(self) -> None:
        """Prove the master by the bytes of each log, in the turn of whoever connects. From any thread."""
        for one in self.replicas.values():
            one.prove_master()

    def bring_slow(self) -> BatchResult | None:
        """After `resume`: bring one batch of a log that is too slow for its group. Raises LogtwinError."""
        replica = None if self._gains_logs else next((one for one in self.replicas.values() if one.is_too_slow), None)
        if replica is None:
            return None
        master = self.master.log(replica.log_id)
        bounds, start = master.bounds(), replica.position()
        if start is None:
            start = resolve_offset(self._options.starting_offset, bounds, master)
        check_position(start, bounds, log=replica.log_id)
        end = master.end_of_batch(start, bounds.end, self._options.max_bytes_per_trigger)
        return self.group.bring(replica, OffsetRange(start, end)) if start < end else None

    # Logs that come

    @property
    def has_news(self) -> bool:
        """Whether the master has a log that has no replica yet, or may have: one that another job had or that had no
        leader, or its first.
        """
        if not self.watch.held.keys() <= self.replicas.keys():
            return True
        may_come = bool(self.elsewhere) or not self.replicas or not self._unanswered <= self.replicas.keys()
        return self._gains_logs and may_come and time.monotonic() >= self._look_again_at_s

    def add(self) -> None:
        """Add the logs of the master that have no replica yet.

        A replica begins with one commit of all logs of its master, so that a crash cannot change where each starts. A
        log that comes later was therefore added to the master, and begins at 0. Raises LogtwinError.
        """
        self._add(self._ask())

    def _add(self, held: Mapping[LogId, Holding]) -> None:
        added = self._replicas(log_id for log_id in held if str(log_id) not in self.replicas)
        if added:
            beginning = Beginning(self._starts(held), next(iter(held.values())).identity)
            gained = self._opening.open(*added.values(), beginning=beginning)
            if gained:
                log.warning(
                    "%s: there are more logs: %s came after the others. They are replicated from offset 0; the records "
                    "of a key may be in another partition from now on",
                    self.master.id, ", ".join(map(str, gained)),
                )  # fmt: skip
        self.replicas = {**self.replicas, **added}

    def _starts(self, held: Mapping[LogId, Holding]) -> dict[LogId, Offset]:
        """Where each log of the master begins if none has begun, also those that are not `held` for this job.

        Those of this job that have begun are among them, `held` or not: or it would seem that none has.
        """
        begun = {log_id: state.offset for log_id, state in self.states.items() if state.offset is not None}
        if self._shard is not None:
            found = open_master(self._options.model_copy(update={"shard": None})).poll({}).items()
            held = {**held, **{at: one for at, one in found if isinstance(one, Holding)}}
        is_last = self._options.starting_offset == LATEST
        return begun | {at: one.bounds.end if is_last else one.bounds.start for at, one in held.items()}

    def let_go(self) -> bool:
        """Give up the logs that another run has taken; this job waits for them. Returns whether there are any.

        So that two jobs which cannot see each other do not take them in turn all the time, they stay there for a while
        (FRESH_S) whoever is seen. Raises ReplicaError.
        """
        found = self.group.lost(self.replicas.values())
        lost = {self.replicas[at].log_id: error for at, error in found.items() if isinstance(error, TakenOver)}
        if not lost:
            return False
        until_s = time.monotonic() + FRESH_S
        self._taken |= {log_id: (str(error.found), until_s) for log_id, error in lost.items()}
        for error in lost.values():
            log.warning("%s; this job waits for it", error)
        left = {at: one for at, one in self.replicas.items() if one.log_id not in lost}
        self.replicas = left if self._gains_logs else self._replicas([self.master.id])
        self._renew_session()  # the old one would go on acknowledging what it has lost
        return True

    def _replicas(self, log_ids: Iterable[LogId]) -> dict[str, Replica]:
        return {
            str(log_id): Replica(
                self._spark, self._config.warehouse, self.master.log(log_id), self.session, self._opening.writer
            )
            for log_id in log_ids
        }

    # A loss

    def meet(self, error: LogtwinError) -> bool:
        """Handle a loss that has ended the logs. Returns whether they may go on. Raises LogtwinError."""
        self.ask_for([error])
        each = [(one, error) for one in self.replicas.values()]
        if self._gains_logs:
            each = concerned(error, self.replicas, self.watch.held)
        passed = [self._met(replica, one) for replica, one in each]
        return bool(passed) and all(passed)

    def meet_alone(self, error: LogtwinError) -> bool:
        """Handle a loss of the log that `error` names, by the answer to `ask_for`."""
        return self._met(self.replicas[str(error.log)], error)

    def ask_for(self, errors: Iterable[LogtwinError]) -> None:
        """Ask the master for its bounds by now, if the decision about any of `errors` depends on them."""
        if any(self.losses.asks_for(one) for one in errors):
            with suppress(LogtwinError):
                self._ask()

    def _met(self, replica: Replica, error: LogtwinError) -> bool:
        return self.losses.meet(self._by_epochs(replica, error), replica, self._held_of(replica, error))

    def explained(self, error: LogtwinError) -> LogtwinError:
        """Return `error` with a hint what an operator can do about it."""
        return explained(error, self._options.on_loss, self.position())

    def _held_of(self, replica: Replica, error: LogtwinError) -> OffsetRange | None:
        """The log's bounds by its master's last answer; None if another log has the name now."""
        if isinstance(error, Recreated) and replica.state is not None and replica.state.identity is not None:
            return _NOTHING
        return self.watch.held.get(str(replica.log_id))

    def _by_epochs(self, replica: Replica, error: LogtwinError) -> LogtwinError:
        """Return `error`, or the fail-over that caused it. Raises the error that keeps the master from answering."""
        condition, state = condition_of(error), replica.state
        if condition is None or condition.way is not WayPast.REPAIR or isinstance(error, FailedOver) or state is None:
            return error
        parted = self.master.log(replica.log_id).continuing(state.known).parting()
        return error if parted is None else parted.error().at(replica.log_id)

    def _mend(self, replica: Replica) -> None:
        """Repair the replica between two sessions: within one, acknowledged offsets never go back."""
        self.session.close()
        try:
            master = self.master.log(replica.log_id)
            mend(self._spark, self._config.warehouse, master, self._opening.writer, is_owner=replica.is_open)
        finally:
            self._renew_session()

    def _renew_session(self) -> None:
        self.session.close()
        self.session = self.master.open_session(self._prove_in_turn)
        for one in self.replicas.values():
            one.session = self.session


def _sum(offsets: Iterable[Offset]) -> Offset | None:
    """The sum of the offsets; None if there are none."""
    found = list(offsets)
    return Offset(sum(found)) if found else None
