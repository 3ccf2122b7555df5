"""What a signal does to a program of ours, at each moment of its life; tests/pipeline/test_ends.py does it to a job."""

import os
import pty
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.system import signals
from tests.patience import PATIENCE_S
from tests.pipeline.standalone import PROJECT

pytestmark = pytest.mark.job

PROGRAM = """
import contextlib, ctypes, logging, os, signal, sys, threading, time
from pipeline.cli.entry import heed_signals
heed_signals()
from pipeline.system import signals
from pipeline.system.console import run
signals.UNWIND_WITHIN_S = 5 if sys.argv[1] in ("verb", "stuck", "breaks") else 0.5  # what closes has time for it
signals.TOGETHER_S = float(sys.argv[2])
say = lambda word: print(word, flush=True)
def at_once():
    [signal.siginterrupt(number, False) for number in signals.SIGNALS]
    say("ready")
    ctypes.CDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # no signal makes it return
def unread(*_, **__):
    os.set_blocking(1, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(1, bytes(4096)): pass
    os.set_blocking(1, True)
    sys.stdout = open(1, "w")  # buffered, whatever the environment says
    sys.stdout.write("more")
    print("ready", file=sys.stderr, flush=True)
    time.sleep(600)
def mute(*_, **__):
    held = logging.getLogger().handlers[0].lock
    holds, stop = threading.Event(), threading.Event()
    threading.Thread(target=lambda: [held.acquire(), holds.set(), time.sleep(600)], daemon=True).start()
    holds.wait()
    with signals.stop_by_signal(stop.set):
        say("ready")
        stop.wait()
    say("asked")
    time.sleep(600)
def sparks(*_, **__):
    with signals.at_once():
        raise KeyboardInterrupt  # before the thread has heard of it
def verb(*_, **__):
    try:
        say("ready")
        time.sleep(600)
    finally:
        say("closed")
        if sys.argv[1] == "stuck": threading.Event().wait()
        if sys.argv[1] == "breaks": raise ValueError
def job(*_, **__):
    stop = threading.Event()
    with signals.stop_by_signal(stop.set):
        say("ready")
        stop.wait()
        say("asked")
        sys.stdin.read() if signals.TOGETHER_S else time.sleep(600)  # until the test has sent all
at_once() if sys.argv[1] == "at_once" else run(globals().get(sys.argv[1], verb), [])
"""
TWO_END_IT = """
import logging, signal, threading, time
from pipeline.system import signals
said = threading.Event()
class Slow(logging.Handler):
    def emit(self, record): said.set(); time.sleep(0.3); print(record.getMessage(), flush=True)
logging.getLogger().addHandler(Slow())
threading.Thread(target=signals._leave_now, args=(signal.SIGTERM,)).start()
said.wait()
signals._leave_now(signal.SIGTERM)
"""
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ended(
    way: str, together_s: float, *numbers: signal.Signals, under: tuple[str, ...] = ()
) -> tuple[int, str, list[str]]:
    """Its exit code, standard output, and standard error without times; a signal at each line, or all at the first."""
    command = [*under, sys.executable, "-c", PROGRAM, way, str(together_s)]
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for at, number in enumerate(numbers):
            if not (at and together_s):
                assert process.stdout.readline() in ("ready\n", "asked\n")
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, [line.partition(" WARNING  ")[2] or line for line in err.splitlines()]


@pytest.mark.parametrize("number", ALL)
def test_each_signal_ends_a_program_with_one_line(number: signal.Signals) -> None:
    """A call into C does not hold it up, and what a verb has open is closed; a job is asked once."""
    said = [f"ended by {number.name}"]
    assert ended("at_once", 60, number) == (128 + number, "", said)
    assert ended("verb", 60, number) == (128 + number, "closed\n", said)
    asked = [f"{number.name}: it stops between two batches; a second signal ends it at once"]
    assert ended("job", 60, number, number) == (0, "asked\n", asked)


@pytest.mark.parametrize("way", ["stuck", "breaks"])
def test_a_verb_ends_so_whatever_the_signal_breaks(way: str) -> None:
    assert ended(way, 60, signal.SIGTERM) == (143, "closed\n", ["ended by SIGTERM"])


def test_a_second_signal_ends_it_at_once() -> None:
    code, out, lines = ended("job", 0, signal.SIGTERM, signal.SIGINT)
    assert (code, out, lines[1:]) == (130, "", ["ended by SIGINT"])


def test_nohup_is_heeded_and_keeps_no_other_signal_away() -> None:
    numbers = (signal.SIGHUP, signal.SIGTERM)
    assert ended("verb", 60, *numbers, under=("nohup",)) == (143, "closed\n", ["ended by SIGTERM"])


def test_a_job_whose_terminal_is_gone_stops_in_order() -> None:
    """What it says then fails nowhere."""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "job", "60"]
    with subprocess.Popen(command, cwd=PROJECT, stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            assert terminal.readline() == b"ready\r\n"  # whole: the end of a line may come by itself
        process.send_signal(signal.SIGHUP)
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_in_a_thread_of_another_program_signals_are_left_to_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not end by what ends a verb there, either."""

    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in ALL]

    def verb() -> list[object]:
        with signals.at_once(), signals.unwinding():
            found = handlers()
        with pytest.raises(SystemExit) as ended:
            signals.leave(signal.SIGTERM)
        return [*found, ended.value.code]

    monkeypatch.setattr(signals, "_watch", None)
    monkeypatch.setattr(signals, "_said", threading.Event())
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(verb).result(PATIENCE_S) == [*handlers(), 143]
    assert caplog.messages == ["ended by SIGTERM"]


def test_a_thread_that_ends_it_waits_for_the_one_that_says_so() -> None:
    ended = subprocess.run([sys.executable, "-c", TWO_END_IT], cwd=PROJECT, stdout=-1, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (143, "ended by SIGTERM\n")


def test_an_interrupt_of_sparks_that_is_quicker_than_the_thread_is_said() -> None:
    assert ended("sparks", 60) == (130, "", ["ended by SIGINT"])


def test_whoever_does_not_read_its_output_does_not_keep_it() -> None:
    """Standard output is a full pipe; or a thread holds the lock of the log while it writes to one."""
    command = [sys.executable, "-c", PROGRAM, "unread", "60"]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(PATIENCE_S) == 143
        finally:
            process.kill()
    assert ended("mute", 0, signal.SIGTERM, signal.SIGTERM)[:2] == (143, "")
