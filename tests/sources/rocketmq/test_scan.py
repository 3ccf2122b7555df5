from __future__ import annotations

import numpy as np
import pytest

from sources.offsets import Offset
from sources.rocketmq.columns.scan import RecordHeads, hop
from sources.rocketmq.format.commitlog import BLANK, HEAD, V1, Blank, Limits
from tests.sources.rocketmq.records import log_of, message

START = 1000


def heads_of(data: bytes, limits: Limits | None = None) -> RecordHeads:
    return hop(memoryview(data), Offset(START), Offset(START + len(data)), limits or Limits())


def test_messages_and_blanks() -> None:
    log = log_of([message(), Blank(Offset(0), 8, b""), message(body=b"longer"), Blank(Offset(0), 20, bytes(12))], START)
    heads = heads_of(log.stored)
    assert (heads.starts + START).tolist() == [record.offset for record in log.records]
    assert (heads.ends + START).tolist() == [*(record.offset for record in log.records[1:]), log.end]
    assert heads.is_blank.tolist() == [False, True, False, True]
    assert heads.error is None


@pytest.mark.parametrize("size", [-(2**31), -8, -1, 0, 1, 7, 8, 90, 2**31 - 1])
@pytest.mark.parametrize("rest", [b"", bytes(100), HEAD.pack(8, BLANK) * 3])
def test_a_size_that_no_message_has_is_the_end_whatever_follows(size: int, rest: bytes) -> None:
    log = log_of([message(), message()], START)
    heads = heads_of(log.stored + HEAD.pack(size, V1) + rest)
    assert heads.starts.tolist() == [0, len(log.stored) // 2]
    assert heads.end == len(log.stored)
    assert heads.error is not None
    assert heads.error.offset == log.end


def test_the_first_of_several_wrong_heads_is_told() -> None:
    one = log_of([message()], START).stored
    wrong = HEAD.pack(len(one), 0x1234) + one[HEAD.size :]
    heads = heads_of(one + HEAD.pack(8, BLANK) + wrong + one + wrong)
    assert heads.is_blank.tolist() == [False, True]
    assert heads.end == len(one) + 8
    assert heads.error is not None
    assert heads.error.found == "magic 0x00001234"


def test_a_record_that_is_not_all_there_is_left_and_is_no_error() -> None:
    log = log_of([message(), message()], START)
    for cut in range(1, len(log.stored) // 2):
        heads = heads_of(log.stored[:-cut])
        assert heads.starts.tolist() == [0]
        assert heads.end == len(log.stored) // 2
        assert heads.error is None


@pytest.mark.parametrize(("most", "records"), [(8 * 1024 * 1024, 1), (95, 0)])
def test_a_record_above_the_limit_is_an_error_even_if_incomplete(most: int, records: int) -> None:
    stored = log_of([message()], START).stored
    heads = heads_of(stored + HEAD.pack(8 * 1024 * 1024 + 1, V1), Limits(max_record_bytes=most))
    assert heads.error is not None
    assert heads.error.expected == f"at most {most} bytes"
    assert heads.starts.tolist() == [0] * records


def test_nothing_to_hop_over() -> None:
    for data in (b"", bytes(7)):
        heads = heads_of(data)
        assert (len(heads.starts), heads.end, heads.error) == (0, 0, None)
        assert heads.starts.dtype == np.int64
