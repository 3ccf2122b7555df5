"""Shows a person how logs are replicated: a live table on a terminal; elsewhere lines of the log, few of them."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, repeat
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipeline.monitoring.progress import Phase, Progress
from pipeline.system.console import FACTS
from sources.errors import unnamed
from sources.offsets import LogId, Unit
from sources.readable import visible

RATE_WINDOW_S = 5.0
LINE_EVERY_S: Final = 60.0
MOST_LINES: Final = 20
"""More logs than this share one line; errors of each are logged as they come."""
_ALL_EVERY_S: Final = 5.0

log = logging.getLogger(__name__)


@dataclass
class Rate:
    """Bytes and records a second over the last RATE_WINDOW_S seconds, from totals."""

    samples: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, at_s: float, records: int, size_bytes: int) -> tuple[float, float]:
        """Take a sample of the totals. Returns records/s and bytes/s."""
        self.samples.append((at_s, records, size_bytes))
        while len(self.samples) > 2 and at_s - self.samples[0][0] > RATE_WINDOW_S:
            self.samples.popleft()
        first_s, first_records, first_bytes = self.samples[0]
        passed_s = at_s - first_s
        if passed_s <= 0:
            return 0.0, 0.0
        return (records - first_records) / passed_s, (size_bytes - first_bytes) / passed_s


@dataclass(frozen=True, slots=True)
class _Shown:
    """A log at a moment, and its rates."""

    of: Progress
    records_s: float
    bytes_s: float

    @property
    def state(self) -> object:
        """The facts whose change is worth a line at once."""
        waits_for = type(self.of.error).__name__ if self.of.phase is Phase.WAITING else None
        return self.of.phase, waits_for, self.of.reconnects, self.of.batches > 0

    @property
    def row(self) -> dict[str, str]:
        return {
            "log": self.of.log_id,
            "phase": str(self.of.phase),
            "offset": number(self.of.position),
            "lag": _lag(self.of),
            "records/s": f"{self.records_s:,.0f}",
            "MB/s": f"{self.bytes_s / 1e6:,.1f}",
            "acknowledged": number(self.of.acknowledged),
            **_exceptions(self.of),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for programs, in plain units."""
        return {
            "log": self.of.log_id,
            "phase": self.of.phase,
            "offset": self.of.position,
            f"lag_{self.of.unit}": self.of.lag,
            "lag_s": self.of.lag_s,
            "acknowledged": self.of.acknowledged,
            "records_per_s": round(self.records_s, 1),
            "bytes_per_s": round(self.bytes_s),
            "reconnects": self.of.reconnects,
        }


class Display:
    """Shows progress; a context manager. Call it with the progress of all logs at each poll.

    With `is_live`, in a table on `console`. Else it logs a line for each log every LINE_EVERY_S, and one of a log at
    once when its state changes.
    """

    def __init__(self, console: Console, *, is_live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates: dict[str, Rate] = {}
        self._states: dict[str, object] = {}
        self._last_s = -LINE_EVERY_S
        self._live = Live(console=console, refresh_per_second=4, transient=True) if is_live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with suppress(OSError):  # a terminal that was closed
                self._live.stop()

    def __call__(self, logs: list[Progress]) -> bool:
        """Show the progress of all logs. Returns True, because a display never ends a job."""
        now_s = self._clock()
        shown = [self._shown(progress, now_s) for progress in logs]
        if self._live is not None:
            with suppress(OSError):
                self._live.update(_table([one.row for one in shown]))
        elif len(shown) > MOST_LINES:
            self._log_all(shown, now_s)
        else:
            self._log_each(shown, now_s)
        return True

    def _shown(self, progress: Progress, now_s: float) -> _Shown:
        rate = self._rates.setdefault(progress.log_id, Rate())
        return _Shown(progress, *rate.add(now_s, progress.records, progress.bytes))

    def _is_due(self, now_s: float) -> bool:
        if now_s - self._last_s < LINE_EVERY_S:
            return False
        self._last_s = now_s
        return True

    def _log_each(self, shown: Sequence[_Shown], now_s: float) -> None:
        is_due = self._is_due(now_s)
        for one in shown:
            if is_due or self._states.get(one.of.log_id) != one.state:
                log.info("%s", _line(one.row), extra={FACTS: one.facts})
            self._states[one.of.log_id] = one.state

    def _log_all(self, shown: Sequence[_Shown], now_s: float) -> None:
        phases = Counter(str(one.of.phase) for one in shown)
        has_changed = self._states.get("") != phases and now_s - self._last_s >= _ALL_EVERY_S
        if self._is_due(now_s) or has_changed:
            self._states[""], self._last_s = phases, now_s
            records_s, bytes_s = sum(one.records_s for one in shown), sum(one.bytes_s for one in shown)
            each = ", ".join(f"{of:,} {phase}" for phase, of in sorted(phases.items()))
            facts = {"logs": dict(phases), "records_per_s": round(records_s, 1), "bytes_per_s": round(bytes_s)}
            line = f"{len(shown):,} logs: {each}, records/s {records_s:,.0f}, MB/s {bytes_s / 1e6:,.1f}"
            log.info("%s", line, extra={FACTS: facts})


def moment(at: datetime) -> str:
    """Return a time of this process or of a job for a person, to the second, in UTC; of data: `sources.readable`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def number(value: int | None) -> str:
    """An offset or a count as text for a person; a dash for None."""
    return "–" if value is None else f"{value:,}"


def count(value: int, what: str, several: str | None = None) -> str:
    """``1 gap``, ``2 gaps``."""
    return f"{value:,} {what if value == 1 else several or what + 's'}"


def size(value_bytes: int | None) -> str:
    """A number of bytes as text for a person, in powers of 1000; a dash for None."""
    if value_bytes is None:
        return "–"
    value = float(value_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def extent(offsets: int | None, log_id: LogId) -> str:
    """The size of a range of `offsets` as text for a person, in the log's unit; a dash for None."""
    return in_unit(offsets, log_id.unit)


def in_unit(offsets: int | None, unit: Unit) -> str:
    """So many `offsets` as text for a person, in `unit`; a dash for None."""
    if offsets is None or unit == "bytes":
        return size(offsets)
    return f"{offsets:,} {unit}"


def held_back_by_transaction(offsets: int) -> str:
    """Say for a person what lies behind the last offset of a partition that can be read."""
    return f"{in_unit(offsets, 'offsets')} wait for an open transaction to end"


def age(at: datetime, now: datetime) -> str:
    """How long ago `at` was; 0 s if the clock behind it is ahead of ours."""
    return duration(max(0.0, (now - at).total_seconds()))


def duration(seconds: float | None) -> str:
    """A span of time as text for a person, in its two largest units; a dash for None."""
    if seconds is None:
        return "–"
    left, parts = round(seconds), []
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        whole, left = divmod(left, length_s)
        parts.append(f"{whole} {unit}" if whole else "")
    first = next((at for at, part in enumerate(parts) if part), len(parts) - 1)
    return " ".join(part for part in parts[first : first + 2] if part) or "0 s"


def _lag(progress: Progress) -> str:
    seconds = round(progress.lag_s or 0)
    behind = in_unit(progress.lag, progress.unit)
    return behind + (f", {duration(seconds)}" if seconds else "")


def _exceptions(progress: Progress) -> dict[str, str]:
    """The columns that are shown only if they have something to show."""
    shown = {}
    if progress.reconnects:
        shown["reconnects"] = number(progress.reconnects)
    if progress.error and progress.phase is Phase.WAITING:
        shown["error"] = unnamed(progress.error, progress.log_id)
    return shown


def _table(rows: list[dict[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(name, justify="left" if name in {"log", "phase", "error"} else "right")
    for row in rows:
        table.add_row(*(Text(visible(row.get(name, ""))) for name in names))
    return table


def _line(row: dict[str, str]) -> str:
    parts = [f"{name} {value}" for name, value in row.items() if name not in {"log", "phase"}]
    return f"{row['log']}: {row['phase']}, {', '.join(parts)}"


def fact_blocks(blocks: Iterable[tuple[object, Iterable[tuple[str, str]]]]) -> Group:
    """Lay out facts of each log: a heading, and a fact a line."""
    made = ((Text(str(name), style="bold"), FactTable([*facts], "  "), Text()) for name, facts in blocks)
    return Group(*(part for block in made for part in block))


@dataclass(frozen=True, slots=True)
class FactTable:
    """A fact a line: its name and its words, which are folded where the line ends. No blanks follow them."""

    facts: Sequence[tuple[str, str]]
    indent: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        begin = len(self.indent) + max((len(name) for name, _ in self.facts), default=0) + 2
        for name, words in self.facts:
            lines = Text(visible(words)).wrap(console, max(options.max_width - begin, 1), overflow="fold")
            for first, line in zip(chain([name], repeat("")), lines):  # noqa: B905 - as many names as lines
                line.rstrip()
                yield Text(f"{self.indent}{first}".ljust(begin)).append_text(line)
