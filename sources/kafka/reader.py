"""Partitions of a cluster read side by side: each broker is asked at once for all partitions that it leads.

What must hold after reading a range [a, b): the leader was asked from a on, each request began where the answer before
it ended, and the last answer reached b. Offsets without a record are legal (compaction, and what transactions leave
behind) if a batch from the leader led past them. An empty answer proves nothing: a leader that throttles or has not
caught up also returns nothing.

Leader epochs go along with offsets, so that a log that was cut and grew again is noticed (KIP-320). The epoch of an
offset is that of the batch before it or, if the leader has none there any more, that of the batch behind it. The epoch
of what was read before a hole would not do: if it ended inside the hole, that would look like a cut.

Reading goes round by round. In a round each broker gets one request, and all of them before any has answered. The
answers together have room for `chunk_bytes`, which the first partitions of each request take. So a partition that got
records goes behind all others, and one that got none is taken to have none only if those before it got none, either. A
range of a few offsets asks for a few bytes: the rest of a long log would come for nothing. If that is too little, the
next request asks for more.

After an error that a retry can help, a partition is requested again until it has not advanced for `patience_ms`; others
do not wait for it. Its topic is forgotten, so leader and topic id are looked up again.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sources.bounds import check_within
from sources.errors import CorruptRecord, LogtwinError, MasterRefused, MasterSilent, ProtocolViolation, UnprovenEnd
from sources.kafka.cluster.connection import Cluster, kept, may_pass
from sources.kafka.cluster.leaders import Fetched, FetchedBatches, FetchQuestion, bounds_of, fetch, fetch_one, in_order
from sources.kafka.cluster.settings import Isolation, KafkaSettings
from sources.kafka.cluster.topics import Topic, TopicPartition, learn_topics, topic_known
from sources.kafka.format.batches import damage_at, decode_sound
from sources.kafka.format.chunks import DecodedAnswer, FetchAnswer, decoded_together
from sources.kafka.options import RECORD_BYTES
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import LogId, Offset, OffsetRange, topic_and_number
from sources.reading import Come, Ended, WantedSplit

MIB: Final = 1024 * 1024

_LEAST_BYTES: Final = 16 * 1024
_FOR_LONGER: Final = 4  # records may be so many times longer than assumed before a range needs several rounds
_MORE: Final = 8
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaReader:
    """The `sources.reading.LogReader` of all partitions of a cluster that are read in the same way.

    `chunk_bytes` is how much is requested of a broker at once; a larger batch comes whole. An absent leader is waited
    for `patience_ms`. With `past_damage`, reading goes on behind a damaged batch. For `patience_s` see
    `MasterLog.hurried`: no partition ends late before it was requested once, with or without success.
    """

    settings: KafkaSettings
    isolation: Isolation = Isolation.READ_COMMITTED
    chunk_bytes: int = 8 * MIB
    patience_ms: int = 30_000
    past_damage: bool = False
    patience_s: float | None = None

    def read(self, wanted: Sequence[WantedSplit]) -> Iterator[Come]:
        """Yield the chunks of each range, which join and cover exactly that. Chunks of holes have no records.

        Without a `Known.identity`, the topic is whichever has the name now. The
        chunks' `raw` is made of their records (`columns.canonical`), so it is equal however the range is cut. Damage is
        one batch or more, or the part of them in the range, with all their bytes; it ends where a sound batch begins.

        A range ends with BelowMinimum, AboveMaximum, Rewritten, Recreated, CorruptRecord; UnprovenEnd for a damaged
        batch that no sound one follows yet; ConfigurationError (no such topic or partition, not allowed),
        MasterUnreachable, MasterSilent, MasterRefused, ProtocolViolation; TimeIsUp.
        """
        rounds = _Rounds(self, wanted)
        yield from rounds.ended_at_once(wanted)
        while rounds.wait():
            try:
                with kept(self.settings) as cluster:
                    yield from rounds.read(cluster)
            except _Broken:
                pass  # the ranges that it concerns have their error already
            except LogtwinError as error:
                yield from rounds.all_failed(error)


class _Broken(Exception):
    """A connection broke: none of this cluster's is used again."""


@dataclass(slots=True, eq=False)
class _Reading:
    """One range. `wanted` is still to come, and has been requested in vain since `since_s`."""

    number: int
    log_id: LogId
    tp: TopicPartition
    topic_id: uuid.UUID | None
    wanted: OffsetRange
    epoch: int | None
    since_s: float
    max_bytes: int
    has_advanced: bool = False
    trouble: LogtwinError | None = None
    tries: int = 0
    again_at_s: float = 0.0

    @classmethod
    def of(cls, number: int, wanted: WantedSplit, now_s: float) -> _Reading:
        log_id, known = wanted.log.log_id, wanted.log.known
        topic, partition = topic_and_number(log_id)
        tp = TopicPartition(topic.name.rpartition("/")[2], partition)
        topic_id = None if known.identity is None else uuid.UUID(known.identity)
        epoch = known.mark if known.offset == wanted.owned.start else None
        max_bytes = max(wanted.owned.size * RECORD_BYTES * _FOR_LONGER, _LEAST_BYTES)
        return cls(number, log_id, tp, topic_id, wanted.owned, epoch, now_s, max_bytes)

    def advance(self, reached: Offset, epoch: int | None) -> None:
        self.wanted, self.epoch = self.wanted.starting_at(reached), epoch
        self.has_advanced, self.trouble, self.tries = True, None, 0

    def postpone(self, error: LogtwinError, now_s: float) -> None:
        """Note an error that may pass, and when to try again: later after each in a row."""
        longest_s = min(_FIRST_WAIT_S * 2**self.tries, _LONGEST_WAIT_S)
        self.trouble, self.tries = error, min(self.tries + 1, 10)
        self.again_at_s = now_s + random.uniform(0, longest_s)  # noqa: S311 - nothing secret


Asked = tuple[_Reading, FetchQuestion]


class _Rounds:
    """The ranges that are still to be read, in the order of the requests."""

    def __init__(self, reader: KafkaReader, wanted: Sequence[WantedSplit]) -> None:
        now_s = time.monotonic()
        self._reader = reader
        self._left = {
            number: _Reading.of(number, one, now_s) for number, one in enumerate(wanted) if not one.owned.is_empty
        }
        self._ends_s = None if reader.patience_s is None else now_s + reader.patience_s

    @staticmethod
    def ended_at_once(wanted: Sequence[WantedSplit]) -> Iterator[Come]:
        return ((number, Ended()) for number, one in enumerate(wanted) if one.owned.is_empty)

    def wait(self) -> bool:
        """Wait until a range is due. Return whether anything is left to be read."""
        if not self._left:
            return False
        again_at_s = min(one.again_at_s for one in self._left.values())
        now_s = time.monotonic()
        if self._ends_s is not None and now_s < self._ends_s < again_at_s:
            again_at_s = self._ends_s
        wait_s = again_at_s - now_s
        if wait_s > 0:
            time.sleep(wait_s)
        return True

    def read(self, cluster: Cluster) -> Iterator[Come]:
        """Go round after round. Raises _Broken if a connection broke, and as `Cluster.call` does if the first did."""
        while self.wait():
            is_broken = False
            asked = yield from self._questions(cluster)
            room_bytes = max(self._reader.chunk_bytes // max(len(asked), 1), 1)
            sent = [(of, self._sent(cluster, node_id, of, room_bytes)) for node_id, of in asked.items()]
            for questions, found in [(questions, _answers(answers)) for questions, answers in sent]:
                if isinstance(found, LogtwinError):
                    yield from self._failed(cluster, [(reading, found) for reading, _ in questions])
                    is_broken = True
                else:
                    yield from self._take(cluster, questions, found)
            yield from self._end_late()
            if is_broken:
                raise _Broken

    def all_failed(self, error: LogtwinError) -> Iterator[Come]:
        """Note that there is no connection: no range has advanced."""
        yield from self._failed(None, [(reading, error) for reading in self._left.values()])
        yield from self._end_late()

    def _questions(self, cluster: Cluster) -> Generator[Come, None, dict[int, list[Asked]]]:
        """Yield what has failed; return the questions for each broker now, in the order of its request."""
        now_s = time.monotonic()
        due: dict[TopicPartition, _Reading] = {}
        for one in self._left.values():
            if one.again_at_s <= now_s:
                due.setdefault(one.tp, one)  # a request asks once for each partition
        learn_topics(cluster, ((tp, one.topic_id) for tp, one in due.items()))
        asked: dict[int, list[Asked]] = {}
        failed: list[tuple[_Reading, LogtwinError]] = []
        for one in due.values():
            if one.trouble is None:
                one.since_s = now_s
            try:
                topic = topic_known(cluster, one.tp.topic, one.topic_id)
                question = self._question(one, topic)
            except LogtwinError as error:
                failed.append((one, error))
            else:
                asked.setdefault(question.leader.node_id, []).append((one, question))
        yield from self._failed(cluster, failed)
        return {node: [of[at] for at in in_order([one for _, one in of])] for node, of in asked.items()}

    @staticmethod
    def _question(one: _Reading, topic: Topic) -> FetchQuestion:
        one.topic_id = topic.id
        return FetchQuestion(
            one.tp, topic.id, topic.leader(one.tp.partition), one.wanted.start, one.max_bytes, one.epoch
        )

    def _sent(
        self, cluster: Cluster, node_id: int, asked: Sequence[Asked], max_bytes: int
    ) -> Callable[[], list[Fetched]] | LogtwinError:
        questions = [question for _, question in asked]
        try:
            return fetch(cluster, node_id, questions, max_bytes=max_bytes, isolation=self._reader.isolation)
        except LogtwinError as error:
            return error

    def _take(self, cluster: Cluster, asked: Sequence[Asked], found: Sequence[Fetched]) -> Iterator[Come]:
        """Take a broker's answers: decode the records, and find out why some partitions got none."""
        came: list[tuple[_Reading, FetchQuestion, FetchedBatches]] = []
        silent: list[tuple[_Reading, FetchQuestion, FetchedBatches]] = []
        failed: list[tuple[_Reading, LogtwinError]] = []
        for (reading, question), answer in zip(asked, found, strict=True):
            if isinstance(answer, LogtwinError):
                failed.append((reading, answer))
            elif answer.records:
                came.append((reading, question, answer))
            elif not came:
                silent.append((reading, question, answer))
            else:
                reading.max_bytes *= _MORE  # there was no room, perhaps for want of this
        failed += self._errors_of_empty(cluster, silent)
        yield from self._failed(cluster, failed)
        answers = [
            FetchAnswer(
                one.records, reading.wanted, one.aborted, one.high_watermark, reading.tp.topic, reading.tp.partition
            )
            for reading, _, one in came
        ]
        decoded = decoded_together(answers, self._reader.isolation)
        for (reading, question, answer), part in zip(came, decoded, strict=True):
            yield from self._got(cluster, reading, question, answer, part)

    def _got(
        self, cluster: Cluster, reading: _Reading, question: FetchQuestion, answer: FetchedBatches, part: DecodedAnswer
    ) -> Iterator[Come]:
        if part.error is not None:
            yield self._end(reading, part.error)
            return
        piece: Chunk | Damage | None = part.chunk
        if piece is None:
            try:
                piece = self._damage(cluster, reading, question, answer)
            except UnprovenEnd as error:
                yield self._end(reading, error)  # it is not asked for again
                return
            except LogtwinError as error:
                yield from self._failed(cluster, [(reading, error)])
                return
        mark = piece.mark if isinstance(piece, Chunk) else None
        reading.advance(piece.covered.end, mark)
        self._left[reading.number] = self._left.pop(reading.number)  # behind all others
        yield reading.number, piece
        if reading.wanted.is_empty:
            yield self._end(reading, None)

    def _damage(self, cluster: Cluster, reading: _Reading, question: FetchQuestion, answer: FetchedBatches) -> Damage:
        """Return the damage at the start of the wanted range, if reading is to pass it; else raise its error."""
        error, damage = self._damaged(reading.wanted, answer)
        if damage is None:  # the answer may have been cut short, for the sake of others
            answer = fetch_one(cluster, replace(question, max_bytes=self._reader.chunk_bytes), self._reader.isolation)
            error, damage = self._damaged(reading.wanted, answer)
        if damage is None and not self._goes_on(cluster, question, answer.high_watermark):
            raise _unproven(error)
        if damage is None or not self._reader.past_damage:
            raise error
        return damage

    def _damaged(self, wanted: OffsetRange, answer: FetchedBatches) -> tuple[CorruptRecord, Damage | None]:
        """Return the error at the start of an answer, and the damage, if the answer shows where that ends."""
        log_end = answer.high_watermark
        decoded = decode_sound(answer.records, wanted, answer.aborted, self._reader.isolation, log_end=log_end)
        if decoded.reached > wanted.start:
            raise MasterRefused("what was damaged is sound when it is asked for again", offset=wanted.start)
        if decoded.error is None:
            raise ProtocolViolation("the leader gave no whole batch", offset=wanted.start)
        return decoded.error, damage_at(answer.records, wanted, decoded, log_end)

    def _goes_on(self, cluster: Cluster, question: FetchQuestion, log_end: Offset) -> bool:
        """Whether the newest batch is sound. Then the damage before it is not the end of the log."""
        newest, isolation = OffsetRange(Offset(log_end - 1), log_end), Isolation.READ_UNCOMMITTED
        last = FetchQuestion(question.tp, question.topic_id, question.leader, newest.start, self._reader.chunk_bytes)
        fetched = fetch_one(cluster, last, isolation)
        decoded = decode_sound(fetched.records, newest, (), isolation, log_end=fetched.high_watermark)
        return decoded.error is None and decoded.reached > newest.start

    def _errors_of_empty(
        self, cluster: Cluster, silent: Sequence[tuple[_Reading, FetchQuestion, FetchedBatches]]
    ) -> Iterator[tuple[_Reading, LogtwinError]]:
        """Yield the error of each partition of which no records came, although there was room."""
        if not silent:
            return
        leader = silent[0][1].leader.node_id
        leading = {question.tp: question.leader.epoch for _, question, _ in silent}
        try:
            held = bounds_of(cluster, leader, leading, self._reader.isolation)
        except LogtwinError as error:
            yield from ((reading, error) for reading, _, _ in silent)
            return
        for reading, question, answer in silent:
            yield reading, _error_of_empty(reading.wanted, held[question.tp], answer)

    def _failed(self, cluster: Cluster | None, failed: Sequence[tuple[_Reading, LogtwinError]]) -> Iterator[Come]:
        """End the ranges whose error no retry can help, or whose patience is over; try the others again later."""
        now_s = time.monotonic()
        for reading, error in failed:
            if cluster is not None and may_pass(error):
                cluster.topics.pop(reading.tp.topic, None)
            if not may_pass(error) or now_s - reading.since_s >= self._reader.patience_ms / 1000:
                yield self._end(reading, error)
            else:
                reading.postpone(error, now_s)

    def _end_late(self) -> Iterator[Come]:
        """If time is up, end the ranges that have advanced, and those in trouble; the others had no turn yet."""
        if self._ends_s is None or time.monotonic() < self._ends_s:
            return
        for reading in list(self._left.values()):
            if reading.has_advanced:
                yield self._end(reading, TimeIsUp())
            elif reading.trouble is not None:
                yield self._end(reading, reading.trouble)

    def _end(self, reading: _Reading, error: Exception | None) -> Come:
        del self._left[reading.number]
        return reading.number, Ended(error.at(reading.log_id) if isinstance(error, LogtwinError) else error)


def _answers(answers: Callable[[], list[Fetched]] | LogtwinError) -> list[Fetched] | LogtwinError:
    """Wait for the answers of a broker: of each, before any is decoded, so that none seems late."""
    if isinstance(answers, LogtwinError):
        return answers
    try:
        return answers()
    except LogtwinError as error:
        return error


def _error_of_empty(wanted: OffsetRange, held: OffsetRange | LogtwinError, answer: FetchedBatches) -> LogtwinError:
    if isinstance(held, LogtwinError):
        return held
    try:
        check_within(wanted, held, kind="kafka")
    except LogtwinError as error:
        return error
    return MasterSilent(
        "the leader returns no records from here on, although its log goes on",
        offset=wanted.start,
        expected=f"batches up to {wanted.end}",
        found=f"none; high watermark {answer.high_watermark}, last stable offset {answer.last_stable}",
    )


def _unproven(error: CorruptRecord) -> UnprovenEnd:
    return UnprovenEnd(
        f"the newest batch is not sound: {error.problem}",
        offset=error.offset,
        expected=error.expected,
        found=error.found,
        hint="It is waited for until a sound batch follows it; then on_loss decides. A broker that recovers may cut it "
        "off, and another replica may have it whole: let that one lead.",
    )
