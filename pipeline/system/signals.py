"""What SIGINT, SIGTERM and SIGHUP do to this process, at every moment from its first import on.

    at once     while nothing is open that needs an end in order: imports, the start of Spark
    unwinding   while a verb runs: an exception in the main thread closes what the verb has open; a program of ours
                that has not come to its end after UNWIND_WITHIN_S ends at once
    stopping    while a job runs: it is asked to stop, which it does between two batches

The last line says which signal it was, and the exit code of the first two is 128 + its number. A second signal ends the
process at once, but what comes within TOGETHER_S belongs to the first: ``timeout`` signals a process and then its
group, systemd may send SIGHUP behind SIGTERM.

A thread decides, which the interpreter wakes through a pipe as soon as the system delivers a signal: a handler of
Python's would wait until a call into C returns, and could not take a lock that the main thread holds.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NoReturn

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOGETHER_S: Final = 0.5
UNWIND_WITHIN_S: Final = 5.0
SAY_WITHIN_S: Final = 1.0
_TERMINALS: Final = tuple(descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor))
_SHOW_CURSOR: Final = b"\x1b[?25h"

log = logging.getLogger(__name__)


class _Way(Enum):
    AT_ONCE = auto()
    UNWINDING = auto()
    STOPPING = auto()


@dataclass(slots=True)
class _Now:
    """How a signal is met at the moment; the first one that the thread has heard, and the one that raised."""

    way: _Way
    request_stop: Callable[[], None] | None = None
    stops: str = ""
    first: signal.Signals | None = None
    at_s: float = 0.0
    raised: signal.Signals | None = None


class _Watch:
    """The thread that is woken by signals; `now` is set by the main thread."""

    def __init__(self) -> None:
        self.now = _Now(_Way.AT_ONCE)
        self.is_ours = False  # the whole process is ours to end, also in order
        self._woken, self.waker = os.pipe()
        os.set_blocking(self.waker, False)
        threading.Thread(target=self._run, name="signals", daemon=True).start()

    def _run(self) -> None:
        wakes = select.poll()  # select(2) has no use for descriptors above 1,023
        wakes.register(self._woken, select.POLLIN)
        while True:
            now, left_ms = self.now, None
            if self.is_ours and now.first is not None and now.way is _Way.UNWINDING:
                left_ms = max(0.0, now.at_s + UNWIND_WITHIN_S - time.monotonic()) * 1000
            if wakes.poll(left_ms):
                for number in os.read(self._woken, 64):
                    self._hear(number)
            elif now is self.now and now.first is not None:
                _leave_now(now.first)

    def _hear(self, number: int) -> None:
        now, at_s = self.now, time.monotonic()
        is_ours = now.way is _Way.AT_ONCE or signal.getsignal(number) is _raise  # PySpark takes Ctrl-C as it starts
        if number not in SIGNALS or not is_ours:
            return
        came = signal.Signals(number)
        if came is signal.SIGHUP:
            _leave_terminal()
        if now.first is not None:
            if at_s - now.at_s > TOGETHER_S:
                _leave_now(came)
            return
        now.at_s, now.first = at_s, came
        if now.way is _Way.AT_ONCE:
            _leave_now(came)
        elif now.request_stop is not None:
            _say_in_time(log.warning, "%s: it %s; a second signal ends it at once", came.name, now.stops)
            now.request_stop()


_watch: _Watch | None = None
_saying, _said = threading.Lock(), threading.Event()


def _raise(number: int, frame: object) -> None:
    """In the main thread, once it comes to Python code."""
    now = _started().now
    if now.way is _Way.UNWINDING and now.raised is None:
        now.raised = signal.Signals(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def _started() -> _Watch:
    global _watch
    if _watch is None:
        _watch = _Watch()
    return _watch


def _take() -> tuple[dict[signal.Signals, Any], int]:
    """Have the thread hear all signals, except a SIGHUP that whoever started us wants ignored (nohup)."""
    before: dict[signal.Signals, Any] = {}
    for number in SIGNALS:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, _raise)
    return before, signal.set_wakeup_fd(_started().waker, warn_on_full_buffer=False)


@contextmanager
def _met(now: _Now) -> Iterator[None]:
    """Meet signals as `now` says during the `with` block; then as before. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _started()
    outer, watch.now = watch.now, now
    handlers, waker = _take()
    try:
        yield
    except BaseException:
        outer.first, outer.at_s = now.first, now.at_s  # what is raised may come of it
        raise
    finally:
        watch.now = outer
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)


def take() -> None:
    """Let a signal end this process at once from now on. For the first line of a program."""
    _started().is_ours = True
    _take()


@contextmanager
def at_once() -> Iterator[None]:
    """In a program that called `take`: a signal ends it at once during the `with` block, whatever else takes it."""
    if _watch is None or not _watch.is_ours:
        yield
        return
    with _met(_Now(_Way.AT_ONCE)):
        try:
            yield
        except KeyboardInterrupt:  # Spark's own handler came before the thread, which then no longer sees this block
            _leave_now(signal.SIGINT)


@contextmanager
def unwinding() -> Iterator[None]:
    """A signal raises KeyboardInterrupt, or SystemExit, in the `with` block."""
    with _met(_Now(_Way.UNWINDING)):
        yield


@contextmanager
def stop_by_signal(request_stop: Callable[[], None], stops: str = "stops between two batches") -> Iterator[None]:
    """A signal in the `with` block calls `request_stop`, in another thread; a second one ends the process at once.

    `stops` says how it ends, in the line about the signal.
    """
    with _met(_Now(_Way.STOPPING, request_stop, stops)):
        yield


@contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in the `with` block, each time: for whoever catches it and goes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def came() -> signal.Signals | None:
    """The signal that was met first, as the innermost `with` block has it; None if none was."""
    return None if _watch is None else _watch.now.first or _watch.now.raised


def leave(by: signal.Signals) -> NoReturn:
    """Say what ended this process, and end it. Nothing that still runs in its threads is waited for."""
    if _watch is not None and _watch.is_ours:
        _leave_now(by)
    _say(by)
    sys.exit(128 + by)


def _leave_now(by: signal.Signals) -> NoReturn:
    _say_in_time(_last_words, by)
    os._exit(128 + by)


def _say_in_time(say: Callable[..., None], *words: object) -> None:
    """Wait SAY_WITHIN_S at most: what reads our output may have stopped, and another thread hold a lock meanwhile."""
    with suppress(RuntimeError):  # no thread starts while the interpreter ends
        saying = threading.Thread(target=say, args=words, daemon=True)
        saying.start()
        saying.join(SAY_WITHIN_S)


def _last_words(by: signal.Signals) -> None:
    _say(by)
    with suppress(OSError, ValueError):
        sys.stdout.flush()


def _say(by: signal.Signals) -> None:
    """Once. Who comes to it while another thread says it waits for that, and does not end the process before."""
    with _saying, suppress(OSError, ValueError):
        if _said.is_set():
            return
        _said.set()
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)  # a display that has no more time hid it
        log.warning("ended by %s", by.name)


def _leave_terminal() -> None:
    """If the terminal is gone, write to nowhere: what ends in order says much, and would fail to say it."""
    gone = [descriptor for descriptor in _TERMINALS if not os.isatty(descriptor)]
    if gone:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in gone:
            os.dup2(nowhere, descriptor)
