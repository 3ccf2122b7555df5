"""``logtwin status`` for Kafka topics: the state of each topic's replica and of its brokers.

As for a log, it asks the job first, then the table: so what the job had acknowledged by then is at most the position.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.config.configuration import Config
from pipeline.inspect.status import LogStatus, PartitionStatus, lag_s, lags, last_run, told_by
from pipeline.inspect.topics_held import HeldTopic
from pipeline.monitoring.run_state import RunState
from sinks.books.topic_states import topics_held
from sinks.state.log_state import LogState
from sources.errors import LogtwinError, MasterError
from sources.kafka.isolation import Isolation
from sources.kafka.metadata import fetched, held_back
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.topic import KafkaTopic, open_topic
from sources.offsets import LogId, Offset, OffsetRange

log = logging.getLogger(__name__)

_PATIENCE_MS: Final = 2000  # somebody waits for the answer


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What the brokers answered about each partition, or why they did not. `committed` are the group's offsets.

    `held_back` is how many offsets behind `held` wait for a transaction, in the partitions that have such.
    """

    topic_id: str | None = None
    held: Mapping[int, OffsetRange] = field(default_factory=dict)
    committed: Mapping[int, Offset] = field(default_factory=dict)
    held_back: Mapping[int, int] = field(default_factory=dict)
    error: str | None = None


def topic_statuses(config: Config) -> list[LogStatus]:
    """The status of each topic. Brokers that cannot be asked are an entry in it, not an error.

    Raises ConfigurationError if a topic is in two tables, ReplicaError if the table contradicts itself.
    """
    if not config.topics:
        return []
    topics = list(_topics(config, topics_held(config.warehouse)))
    runs = {one.id: last_run(config.warehouse, one.id) for one in topics}
    held = topics_held(config.warehouse)
    return [_status(one, runs[one.id], held.get(LogId.parse(one.id), {})) for one in topics]


def _topics(config: Config, held: Collection[LogId]) -> Iterable[ReplicatedTopicOptions]:
    """The topics that exist now, and those that the replica has."""
    replicated = config.topics_among(held)
    try:
        existing = config.asked_topics()
    except MasterError as error:
        log.warning("cannot list the topics, only replicated ones are shown: %s", error)
        existing = ()
    return {options.id: options for options in (*replicated, *existing)}.values()


def _status(options: ReplicatedTopicOptions, run: RunState | None, states: Mapping[int, LogState]) -> LogStatus:
    topic = replace(open_topic(options), patience_ms=_PATIENCE_MS)
    return topic_status_of(HeldTopic(options, states), run, _ask(topic), datetime.now(UTC))


def _ask(topic: KafkaTopic) -> TopicAnswer:
    (found,) = fetched(topic)
    if found.items is None or isinstance(found.items, LogtwinError):
        return TopicAnswer(error=str(found.items))
    end = "last_stable" if topic.isolation is Isolation.READ_COMMITTED else "log_end"
    rows = {row["partition"]: row for row in found.items.to_pylist()}
    return TopicAnswer(
        topic_id=next((row["topic_id"] for row in rows.values()), None),
        held={at: OffsetRange(row["log_start"], row[end]) for at, row in rows.items() if row["leader"] is not None},
        committed={at: row["group_offset"] for at, row in rows.items() if row["group_offset"] is not None},
        held_back=held_back(found.items, topic.isolation),
    )


def topic_status_of(held: HeldTopic, run: RunState | None, answer: TopicAnswer, now: datetime) -> LogStatus:
    """Combine what the job, the table and the brokers say."""
    answer = _of_same_topic(held, answer)
    is_running = run is not None and run.is_live(now)
    facts: Mapping[str, Any] = run.facts if run is not None and is_running else {}
    partitions = _partitions(held.states, facts, answer)
    position = _sum(held.positions.values())
    lag = _sum(one.lag_offsets for one in partitions)
    return LogStatus(
        id=held.options.id,
        role=held.options.role,
        master=held.options.servers,
        master_role=None,
        master_epoch=None,
        confirmed=None,
        epoch=None,
        first=None,
        received=max((at for at in (facts.get("received"), position) if at is not None), default=None),
        position=position,
        acknowledged=facts.get("acknowledged"),
        acknowledged_by_master=_sum(one.acknowledged_by_master for one in partitions),
        master_minimum=_sum(one.master_minimum for one in partitions),
        master_maximum=_sum(one.master_maximum for one in partitions),
        **lags(lag, held.log_id),
        lag_s=lag_s(lag, run if is_running else None, now),
        until_loss_bytes=None,
        until_loss_s=None,
        writer=next((str(one.writer) for one in held.states.values()), None),
        master_error=answer.error,
        partitions=tuple(partitions),
        **told_by(run, now),
    )


def _of_same_topic(held: HeldTopic, answer: TopicAnswer) -> TopicAnswer:
    """`answer`, or an error if the topic was created again: its offsets say nothing about the replicated one."""
    if held.identity is None or answer.topic_id in (None, held.identity):
        return answer
    return TopicAnswer(
        error=f"the topic was deleted and created again: replicated is {held.identity}, there is {answer.topic_id}"
    )


def _partitions(states: Mapping[int, LogState], facts: Mapping[str, Any], answer: TopicAnswer) -> list[PartitionStatus]:
    told = {one["partition"]: one for one in facts.get("partitions", ())}
    numbers = sorted({*answer.held, *states})
    return [_partition(number, states.get(number), told.get(number, {}), answer) for number in numbers]


def _partition(number: int, own: LogState | None, told: Mapping[str, Any], answer: TopicAnswer) -> PartitionStatus:
    held = answer.held.get(number)
    reached = own.offset if own is not None and own.offset is not None else None if held is None else held.start
    return PartitionStatus(
        partition=number,
        epoch=None if own is None else own.epoch,
        first=None if own is None else own.first,
        position=None if own is None else own.offset,
        acknowledged=told.get("acknowledged"),
        acknowledged_by_master=answer.committed.get(number),
        master_minimum=None if held is None else held.start,
        master_maximum=None if held is None else held.end,
        lag_offsets=None if held is None or reached is None else max(0, held.end - reached),
        held_back_offsets=None if held is None else answer.held_back.get(number, 0),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum of `values`; None if one of them is None, or there are none."""
    known = list(values)
    return sum(one for one in known if one is not None) if known and None not in known else None
