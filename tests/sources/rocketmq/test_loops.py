"""The compiled loops themselves: that they never look at bytes that are not theirs, whatever the bytes say.

What they find is tested through `scan`, `columns` and `property_columns`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.system.cache import cache_folder
from sources.decoding.spans import read_only
from sources.rocketmq.columns.loops import hop, name_codes, pairs, read
from sources.rocketmq.format.commitlog import V2, Host, Message
from sources.rocketmq.format.layout import HEAD, V1
from tests.resident import PROJECT
from tests.sources.rocketmq.records import log_of, message

WITH_DAMAGE = ("test_scan.py", "test_property_columns.py", "test_columns.py", "test_damage.py")
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
from sources.decoding.spans import read_only
from sources.decoding.undecodable import as_damage
from tests.sources.rocketmq import index_errors
with as_damage(0):
    read(read_only(memoryview(bytes(90))), np.array([0]), np.array([1000]), 0)
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
    assert read(read_only(memoryview(stored)), starts, ends, 0)[0]
    sound = 0
    for at in range(HEAD.size, len(stored)):
        for value in {0x00, 0x01, 0x7F, 0x80, 0xFF, stored[at] ^ 0x10, stored[at] ^ 0x20} - {stored[at]}:
            raw = read_only(memoryview(stored[:at] + bytes([value]) + stored[at + 1 :]))
            is_sound, found = read(raw, starts, ends, 0)
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


def test_hosts_that_differ_from_those_before() -> None:
    other = Host(IPV6.ip, 10912)
    hosts: list[dict[str, Any]] = [
        {},
        {},
        {"born_host": Host(bytes(4), 1)},
        {"born_host": IPV6, "sys_flag": 0x10},
        {"born_host": IPV6, "store_host": IPV6, "sys_flag": 0x30},
        {"born_host": other, "store_host": IPV6, "sys_flag": 0x30},
        {"born_host": other, "store_host": other, "sys_flag": 0x30},
        {"born_host": other, "store_host": other, "sys_flag": 0x30, "flag": 7},
        {"store_host": IPV6, "sys_flag": 0x20},
    ]
    log = log_of([message(**one) for one in hosts])
    bounds = np.array(log.boundaries)
    is_sound, found = read(read_only(memoryview(log.stored)), bounds[:-1], bounds[1:], 0)
    assert is_sound
    # Where one of the two has another width, both count as different: less is compared, and no text is another.
    assert found.born_host_differs.tolist() == [True, False, True, True, True, True, False, False, True]
    assert found.store_host_differs.tolist() == [True, False, False, True, True, False, True, False, True]


def test_names_in_any_order_have_the_numbers_in_which_they_came() -> None:
    long, longer = "a-name-of-many-letters", "a-name-of-many-lettres"
    rows = [["a", "b", long], [long, "a"], [], ["ab", "a", "b"], [longer, "ab", long, "d", "a-name-o"]]
    codes, firsts, repeats = coded(rows, 7)
    assert codes == [0, 1, 2, 2, 0, 3, 0, 1, 4, 3, 2, 5, 6]
    assert (firsts, repeats) == ([0, 1, 2, 5, 8, 11, 12], False)


def test_a_name_that_a_row_has_twice_and_names_that_are_too_many() -> None:
    assert coded([["a", "b", "a"]], 2) == ([0, 1, 0], [0, 1], True)
    assert coded([["a", "b"], ["a"]], 2) == ([0, 1, 0], [0, 1], False)
    assert len(coded([["a", "b", "c", "d"]], 2)[1]) == 3


def coded(rows: list[list[str]], most: int) -> tuple[list[int], list[int], bool]:
    """What `name_codes` says of rows that have these names."""
    blocks = ["".join(f"{name}\x01v\x02" for name in names).encode() for names in rows]
    bounds = np.cumsum([0, *map(len, blocks)]).astype(np.int32)
    bounds.flags.writeable = False
    text = read_only(memoryview(b"".join(blocks)))
    codes, firsts, repeats = name_codes(text, pairs(text, bounds), most)
    return codes.tolist(), firsts.tolist(), repeats
