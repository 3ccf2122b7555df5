"""Bytes made worse, by a seeded generator: the same seed, the same bytes."""

import random
from itertools import pairwise

FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000
TIMES_AT_BOUNDS_MS = (FIRST_MS - 1, FIRST_MS, END_MS - 1, END_MS, 2**63 // 1000, 10**18, 2**63 - 1, -(2**63))
"""Of the years 1 to 9999, of microseconds in 64 bits, of 64 bits; and nanoseconds."""


class Made:
    """How many bytes the present case has made, for what is held against their number."""

    size_bytes = 0


_EDGES = (0, 1, 0x7F, 0x80, 0xFF)
_WORDS = (b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xda\xa3\x20\xa7")


def mutated(data: bytes, rng: random.Random, most: int = 4) -> bytes:
    """`data` with up to `most` changes; sometimes none."""
    found = bytearray(data)
    for _ in range(rng.randint(0, most)):
        if not found:
            return rng.randbytes(rng.randint(0, 40))
        _change(found, rng)
    Made.size_bytes += len(found)
    return bytes(found)


def _change(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    size = rng.choice((1, 2, 4, 8, rng.randint(1, 64)))
    match rng.randrange(7):
        case 0:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            data[at] = rng.choice(_EDGES)
        case 2:
            del data[at : at + size]
        case 3:
            data[at:at] = rng.randbytes(size)
        case 4:
            data[at:at] = data[at : at + size] * rng.randint(1, 3)
        case 5:
            data[at : at + 4] = rng.choice(_WORDS)
        case _:
            del data[at:]


def in_pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """`data`, cut anywhere."""
    Made.size_bytes += len(data)
    cuts = sorted({0, len(data), *(rng.randint(0, len(data)) for _ in range(rng.randint(0, 6)))})
    return [data[start:end] for start, end in pairwise(cuts)]


LONG_DIGITS = ("9" * 5000, "0" * 5000 + "7", "-" + "8" * 4400, "1e999", "\u0663" * 10, "\u00b2", "NaN")


def text(rng: random.Random) -> str:
    """What producers write, and what they do not."""
    some = (
        "",
        "a",
        "k1 k2",
        " ",
        "\x00",
        "\u2028",
        "\U0010ffff",
        "\ufffd",
        "1",
        "-1",
        "18",
        "2147483648",
        *LONG_DIGITS,
    )
    return "".join(rng.choice(some) for _ in range(rng.choice((1, 1, 1, 2, 5))))
