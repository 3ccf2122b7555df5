"""Reads a log over HA: one split over a connection of its own, or small splits of many brokers at once.

The bytes of small splits are received side by side, and decoded together: for a few records, decoding costs far more
for each call than for each record.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from sources.bounds import check_within
from sources.epochs import below
from sources.errors import ConfigurationError, LogtwinError, MasterSilent, NotAlone, naming
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import Offset, OffsetRange
from sources.reading import Come, Ended, WantedSplit
from sources.rocketmq.broker_words import check_broker, counted_for_s, dialect_of, files, may_let_wait
from sources.rocketmq.columns.codec import DecodedRecords, LogPart, decode_together
from sources.rocketmq.files.segments import SETTLE_S
from sources.rocketmq.format.layout import Limits
from sources.rocketmq.remote_broker import RemoteBroker
from sources.rocketmq.session.ha_client import HAReadOptions, read_stream
from sources.rocketmq.session.stream_chunks import ChunkReader, LogEnd
from sources.rocketmq.wire.ha import Dialect, Plain

if TYPE_CHECKING:
    from sources.rocketmq.log import RocketMQLog

AT_ONCE: Final = 8
"""How many brokers a reader of small splits waits for at the same time."""

TOGETHER: Final = 256
"""How many small splits are decoded together, at most."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream of a log's bytes: what is known of its end, and of the broker that sends it."""

    pieces: Iterator[bytes]
    known_end: Offset
    config: Mapping[str, str] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=Plain)


@dataclass(frozen=True, slots=True)
class Received:
    """The bytes received of a split: `opened` yields them again, and then raises `error` if there is one."""

    data: bytes
    opened: Opened
    error: Exception | None


@dataclass(frozen=True, slots=True)
class OverHA:
    """A log as its `broker` sends it."""

    log: RocketMQLog
    broker: RemoteBroker

    def read(self, owned: OffsetRange, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        """Implement `MasterLog.read`."""
        with self._open(owned, committed) as opened:
            yield from self.chunks(opened, owned, boundary)

    def raw(self, wanted: OffsetRange, committed: Offset | None) -> Generator[memoryview]:
        """Implement `MasterLog.raw`."""
        left = wanted.size
        with self._open(wanted, committed) as opened:
            while left:
                piece = memoryview(next(opened.pieces))[:left]
                left -= len(piece)
                yield piece

    def received(self, owned: OffsetRange, committed: Offset | None) -> Received:
        """Receive all bytes of `owned`, if they come. Raises nothing.

        The planner has just polled the broker, so the bounds are requested again only if nothing comes.
        """
        data: list[bytes] = []
        opened = unopened = Opened(iter(()), owned.end)
        left = owned.size
        error: Exception | None = None
        try:
            with self._open(owned, committed, known_end=owned.end) as opened:
                while left > 0:
                    data.append(next(opened.pieces))
                    left -= len(data[-1])
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is this log's
            error = failure
        has_come = owned.size - left > 1  # a stream of the first byte has that at once
        if not has_come and opened is not unopened and isinstance(error, TimeIsUp | MasterSilent):
            try:
                check_within(owned, self.broker.bounds())
            except LogtwinError as reason:
                error = reason
        whole = b"".join(data)
        return Received(whole, replace(opened, pieces=_again(whole, error)), error)

    def chunks(self, opened: Opened, owned: OffsetRange, boundary: bool) -> Iterator[Chunk | Damage]:
        """Yield the records of `owned`. Raises the error that keeps from it."""
        log = self.log
        reader = ChunkReader(
            chunk_bytes=log.chunk_bytes,
            limits=self.limits(opened),
            log_end=LogEnd(opened.known_end, ask=self._settled_end),
            past_damage=log.past_damage,
            searched=log.parallel_reads or not boundary,
        )
        for piece in reader.read(opened.pieces, owned, boundary=boundary):
            if isinstance(piece, Damage):
                yield replace(piece, error=piece.error.at(log.log_id))
            else:
                known = below(opened.dialect.epochs, piece.covered.end)
                yield replace(piece, epochs=known) if known else piece

    def limits(self, opened: Opened) -> Limits:
        return Limits(max_record_bytes=self.log.max_record_bytes, files=files(opened.config))

    def _settled_end(self) -> Offset:
        """Return where the log ends now. With `past_damage`, first give bytes the time to arrive, as for files."""
        if self.log.past_damage:
            time.sleep(SETTLE_S)
        return self.broker.maximum()

    @contextmanager
    def _open(self, wanted: OffsetRange, committed: Offset | None, known_end: Offset | None = None) -> Iterator[Opened]:
        """Give the log's bytes from ``wanted.start`` on; if `known_end` is given, the log is known to reach it.

        Checks first that requesting these bytes is right.
        """
        log = self.log
        with self.broker.client() as client:
            is_known = known_end is not None and wanted.start <= (committed or 0)
            bounds = None if is_known else client.commit_log_bounds()  # before the role (`may_let_wait`)
            config = client.broker_config()
            if is_known and may_let_wait(config):
                # The first report is a promise there: it must not be of what the broker has lost since it was planned.
                bounds = client.commit_log_bounds()
        if bounds is not None:
            check_within(wanted, bounds)
        check_broker(config, parallel_reads=log.parallel_reads)
        counted_s = counted_for_s(config)
        if log.takes_no_turn and counted_s is not None:
            raise NotAlone(
                "the broker counts connections now, and did not when the job asked last; none was made",
                expected="inSyncReplicas as before",
                found=f"one that counts each for {counted_s:g} s",
                hint="From the next batch on, connections take turns.",
            )
        if bounds is not None and not log.parallel_reads and may_let_wait(config):
            _check_promise(wanted.start, committed, bounds)
        options = HAReadOptions(
            connect_timeout_ms=log.connect_timeout_ms,
            connect_attempts=log.connect_attempts,
            silence_timeout_ms=log.silence_timeout_ms,
            max_frame_bytes=log.max_frame_bytes,
            forgotten_after_s=counted_s,
            patience_s=log.patience_s,
            dialect=dialect_of(config, log.known, beyond_confirm=log.beyond_confirm),
        )
        with closing(read_stream(self.broker.ha(config), wanted.start, options)) as pieces:
            yield Opened(pieces, known_end or (bounds or wanted).end, config, options.dialect)


@dataclass(frozen=True, slots=True)
class SmallSplits:
    """The reader of small splits of any brokers (`sources.reading.LogReader`)."""

    def read(self, wanted: Sequence[WantedSplit]) -> Iterator[Come]:
        pool = ThreadPoolExecutor(min(len(wanted), AT_ONCE), "receives a split")
        try:
            readers: list[OverHA] = [one.log.over_ha() for one in wanted]  # type: ignore[attr-defined] # of its kind
            coming = pool.map(lambda reader, one: reader.received(one.owned, one.committed), readers, wanted)
            all_of = zip(readers, wanted, coming, strict=True)
            first = 0
            while some := [*islice(all_of, TOGETHER)]:  # others are received meanwhile
                for number, (one, decoded) in enumerate(zip(some, _decoded(some), strict=True), first):
                    yield from ((number, piece) for piece in _pieces(*one, decoded))
                first += len(some)
        finally:
            pool.shutdown(cancel_futures=True)


def _decoded(some: Sequence[tuple[OverHA, WantedSplit, Received]]) -> list[DecodedRecords | None]:
    """Return what could be decoded together with the others; None for the rest."""
    parts = {
        at: LogPart(come.data, one.owned.start, one.owned.end, reader.limits(come.opened))
        for at, (reader, one, come) in enumerate(some)
        if come.error is None and one.boundary
    }
    found = dict(zip(parts, decode_together([*parts.values()]), strict=True))
    return [found.get(at) for at in range(len(some))]


def _pieces(
    reader: OverHA, wanted: WantedSplit, come: Received, decoded: DecodedRecords | None
) -> Iterator[Chunk | Damage | Ended]:
    if decoded is not None:
        covered = OffsetRange(wanted.owned.start, decoded.end)
        known = below(come.opened.dialect.epochs, covered.end)
        yield Chunk(covered, decoded.records, memoryview(come.data)[: covered.size], epochs=known)
        yield Ended()
        return
    error = come.error
    try:
        with naming(wanted.log.log_id):
            if error is None:  # it ends within a record, or something is wrong with it: from the beginning
                yield from reader.read(wanted.owned, wanted.committed, wanted.boundary)
            else:
                yield from reader.chunks(come.opened, wanted.owned, wanted.boundary)
    except Exception as raised:  # noqa: BLE001 - whatever it is, it is this log's
        error = raised
    yield Ended(error)


def _again(data: bytes, error: Exception | None) -> Iterator[bytes]:
    if data:
        yield data
    if error is not None:
        raise error


def _check_promise(start: Offset, committed: Offset | None, bounds: OffsetRange) -> None:
    """Check the promise that asking for `start` makes: everything below it, but nothing below the master's minimum."""
    if start > max(committed or 0, bounds.start):
        raise ConfigurationError(
            "reading from here would acknowledge what is not committed",
            offset=start,
            expected=f"a start at or below the committed position {committed or 0}, or at the master's minimum "
            f"{bounds.start}",
            found=start,
            hint="Start at the earliest offset, or set parallel_reads if no producer waits for this master's slaves.",
        )
