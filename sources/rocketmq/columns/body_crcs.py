"""The CRC-32 of many message bodies at once: a compiled loop calls ISA-L's own function.

isal contains ISA-L, and its shared library exports ISA-L's C functions. Calling one through Python for each body takes
five times as long as the CRC of 1 KB. If another build of isal hides the function, that is done, with the same results.

The loop takes the function as an argument, so its machine code can be cached (`sources.decoding.compiled`).
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
from isal import isal_zlib

from sources.decoding.columns import Bytes, Ints
from sources.decoding.compiled import BYTES, INTS, compiled, types
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.layout import CRC_BITS

# uint32_t crc32_gzip_refl(uint32_t init_crc, const unsigned char *buf, uint64_t len): isa-l, include/crc.h
_NAME: Final = "crc32_gzip_refl"
_SIGNATURE: Final = types.uint32(types.uint32, types.uintp, types.uint64)
_CHECKED, _ITS_CRC = b"123456789", 0xCBF43926  # the check value of CRC-32


class CFunction(types.WrapperAddressProtocol):  # type: ignore[misc]  # numba has no types
    """A C function as an argument of a compiled one (numba's Wrapper Address Protocol)."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> types.Type:
        return _SIGNATURE


def found_in(library: str) -> CFunction | None:
    """Find ISA-L's CRC-32 in the shared library at the path `library`; None if it has none that can be called."""
    try:
        function = getattr(ctypes.CDLL(library), _NAME)
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64), ctypes.c_uint32
    if function(0, _CHECKED, len(_CHECKED)) != _ITS_CRC:
        return None
    address = ctypes.cast(function, ctypes.c_void_p).value
    return None if address is None else CFunction(address)


@compiled(types.FunctionType(_SIGNATURE), BYTES, INTS, INTS)
def _crcs(crc32: CFunction, raw: Bytes, starts: Ints, ends: Ints) -> Ints:
    crcs = np.empty(len(starts), np.int64)
    first = raw.ctypes.data
    for row in range(len(starts)):
        crc = crc32(np.uint32(0), np.uintp(first + starts[row]), np.uint64(ends[row] - starts[row]))
        crcs[row] = np.int64(crc) & CRC_BITS
    return crcs


_OF_ISAL: Final = found_in(isal_zlib.__file__)


def body_crcs(raw: Bytes, starts: Ints, ends: Ints, crc32: CFunction | None = _OF_ISAL) -> Ints:
    """Return `bodies.body_crc` of each span [start, end) of `raw`. The spans must lie in it; this is not checked."""
    if crc32 is not None:
        return _crcs(crc32, raw, starts, ends)
    view = raw.data
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([body_crc(view[start:end]) for start, end in spans], np.int64)
