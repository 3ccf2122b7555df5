"""What a signal does to a program of ours, at each moment of its life; tests/pipeline/test_ends.py does it to a job."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S
from tests.pipeline.standalone import PROJECT

PROGRAM = """
import ctypes, os, signal, sys, threading, time
from pipeline.cli.entry import heed_signals
heed_signals()
from pipeline.system import signals
from pipeline.system.console import run
signals.UNWIND_WITHIN_S = 0.5
signals.TOGETHER_S = float(sys.argv[2])
ready = lambda: print("ready", flush=True)

def at_once():
    for number in signals.SIGNALS:
        signal.siginterrupt(number, False)
    ready()
    ctypes.CDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # no signal makes it return

def verb(*given, **named):
    try:
        ready()
        time.sleep(600)
    finally:
        print("closed", flush=True)

def stuck(*given, **named):
    try:
        verb()
    finally:
        threading.Event().wait()

def swallows(*given, **named):
    try:
        verb()
    except BaseException:
        raise ValueError("of what the signal broke")

def job(*given, **named):
    stop = threading.Event()
    with signals.stop_by_signal(stop.set):
        ready()
        stop.wait()
        print("asked", flush=True)
        if sys.argv[2] == "0":
            time.sleep(600)

which = globals()[sys.argv[1]]
at_once() if which is at_once else run(which, [])
"""
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ended(way: str, together_s: float, *numbers: signal.Signals) -> tuple[int, str, list[str]]:
    """Its exit code, standard output, and standard error without times; each signal once it has said a line more."""
    command = [sys.executable, "-c", PROGRAM, way, str(together_s)]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            for at, number in enumerate(numbers):
                if at and not together_s:
                    assert process.stdout.readline() == "asked\n"
                process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    return process.returncode, out, [line.partition(" WARNING  ")[2] or line for line in err.splitlines()]


@pytest.mark.parametrize("number", ALL)
def test_each_signal_ends_a_program_with_one_line(number: signal.Signals) -> None:
    """A call into C does not hold it up, and what a verb has open is closed."""
    said = [f"ended by {number.name}"]
    assert ended("at_once", 60, number) == (128 + number, "", said)
    assert ended("verb", 60, number) == (128 + number, "closed\n", said)


@pytest.mark.parametrize("way", ["stuck", "swallows"])
def test_a_verb_ends_so_whatever_the_signal_breaks(way: str) -> None:
    assert ended(way, 60, signal.SIGTERM) == (143, "closed\n", ["ended by SIGTERM"])


@pytest.mark.parametrize("number", ALL)
def test_a_job_is_asked_to_stop_once_although_its_group_is_signalled_too(number: signal.Signals) -> None:
    code, out, (line,) = ended("job", 60, number, number, signal.SIGHUP)
    assert (code, out) == (0, "asked\n")
    assert line == f"{number.name}: it stops between two batches; a second signal ends it at once"


def test_a_second_signal_ends_it_at_once() -> None:
    code, out, lines = ended("job", 0, signal.SIGTERM, signal.SIGINT)
    assert (code, out, lines[1:]) == (130, "", ["ended by SIGINT"])


def test_who_starts_us_may_have_us_outlive_the_terminal() -> None:
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom pipeline.cli.entry import heed_signals\n"
    )
    script += "heed_signals(); signal.raise_signal(signal.SIGHUP); print('lives')"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "lives\n"
