from __future__ import annotations

import _ctypes
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from sources.decoding.spans import read_only
from sources.rocketmq.columns import body_crcs
from sources.rocketmq.columns.body_crcs import CFunction, found_in

OF_ISAL = found_in(isal_zlib.__file__)
WAYS = pytest.mark.parametrize("crc32", [OF_ISAL, None], ids=["called from the loop", "one by one"])


def crcs(data: bytes, spans: list[tuple[int, int]], crc32: CFunction | None) -> list[int]:
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    return list(body_crcs.body_crcs(read_only(memoryview(data)), starts, ends, crc32))


def test_isal_has_the_function_here() -> None:
    assert OF_ISAL is not None


@WAYS
@given(st.lists(st.binary(max_size=700), max_size=6), st.binary(max_size=9))
def test_each_span_has_the_crc_that_zlib_gives_it(crc32: CFunction | None, bodies: list[bytes], gap: bytes) -> None:
    ends = np.cumsum([len(gap + body) for body in bodies], dtype=np.int64).tolist()
    spans = [(end - len(body), end) for end, body in zip(ends, bodies, strict=True)]
    data = b"".join(gap + body for body in bodies)
    assert crcs(data, spans, crc32) == [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]


def test_a_library_without_the_function_gives_none(tmp_path: Path) -> None:
    (tmp_path / "no.so").write_bytes(b"no library")
    assert found_in(_ctypes.__file__) is None
    assert found_in(str(tmp_path / "no.so")) is None


def test_a_function_that_gives_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_crcs, "_NAME", "crc32_ieee")  # ISA-L's, not reflected
    assert found_in(isal_zlib.__file__) is None
