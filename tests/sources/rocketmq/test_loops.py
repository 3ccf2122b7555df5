"""The compiled loops themselves: that they never look at bytes that are not theirs, whatever the bytes say.

What they find is tested through `scan`, `columns` and `property_columns`.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.system.folders import cache_folder
from sources.decoding.columns import read_only
from sources.rocketmq.columns.loops import hop, read
from sources.rocketmq.format.commitlog import Message
from sources.rocketmq.format.layout import HEAD, V1, V2, Host
from tests.resident import PROJECT
from tests.sources.rocketmq.records import log_of, message

WITH_DAMAGE = ("test_properties.py", "test_columns.py", "test_damage.py")
IPV6 = Host(bytes(15) + b"\x01", 10911)
FORMS = (
    message(),
    message(magic=V2),
    message(sys_flag=0x10, born_host=IPV6),
    message(magic=V2, sys_flag=0x30, born_host=IPV6, store_host=IPV6, properties=b"TAGS\x01a\x02"),
    message(body=b"", topic=""),
)
OUT_OF_BOUNDS = """
import numpy as np
from sources.rocketmq.columns.loops import read
from sources.decoding.columns import read_only
from sources.decoding.undecodable import as_damage
from tests.sources.rocketmq import index_errors
with as_damage(0):
    read(read_only(memoryview(bytes(90))), np.array([0]), np.array([1000]), np.array([0]))
"""
PLUGINS = ("-p", "no:cacheprovider", "-p", "tests.sources.rocketmq.index_errors")


def checking_bounds(*command: str) -> subprocess.CompletedProcess[str]:
    """Python, whose numba checks each index and raises IndexError; with machine code of its own.

    It is kept for the next time: numba makes it anew where the source has changed.
    """
    folder = cache_folder() / "checks-bounds"
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly
def test_no_index_is_out_of_bounds_in_any_damaged_log() -> None:
    assert "IndexError" in checking_bounds("-c", OUT_OF_BOUNDS).stderr  # so it is checked
    own = f"{__file__}::{test_spans_lie_in_the_record_whatever_byte_is_changed.__name__}"
    files = [str(Path(__file__).with_name(name)) for name in WITH_DAMAGE]
    done = checking_bounds("-m", "pytest", "-q", *PLUGINS, own, *files)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("sent", FORMS)
def test_spans_lie_in_the_record_whatever_byte_is_changed(sent: Message) -> None:
    stored = log_of([sent]).stored
    starts, ends = np.array([0]), np.array([len(stored)])
    assert read(read_only(memoryview(stored)), starts, ends, starts)[0]
    sound = 0
    for at in range(HEAD.size, len(stored)):
        for value in {0x00, 0x01, 0x7F, 0x80, 0xFF, stored[at] ^ 0x10, stored[at] ^ 0x20} - {stored[at]}:
            raw = read_only(memoryview(stored[:at] + bytes([value]) + stored[at + 1 :]))
            is_sound, found = read(raw, starts, ends, starts)
            sound += is_sound
            if is_sound:
                spans = (found.body_starts, found.body_ends, found.topic_starts, found.topic_ends)
                bounds = [int(one[0]) for one in (*spans, found.properties_starts, found.properties_ends)]
                assert bounds == sorted(bounds)
                assert bounds[-1] == len(stored)
    assert sound > 100  # a number that is another is as good as before; a length or a place is not


def test_more_heads_than_the_first_guess_has_room_for() -> None:
    for size in (8, 100):
        raw = read_only(memoryview((HEAD.pack(size, V1) + bytes(size - HEAD.size)) * 5000))
        places, is_message = hop(raw, len(raw) - HEAD.size + 1, 1 << 24)
        assert places.tolist() == list(range(0, 5001 * size, size))
        assert is_message.tolist() == [size == 100] * 5000
