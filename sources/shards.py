"""Which of several jobs of one configuration has which of its logs: ``logtwin replicate --shard 2/8``.

What is dealt are ids: of logs, so that the partitions of a topic spread over all shards; of topics, for what belongs to
no partition; and of typed tables (`TABLE`). An id falls into the same share at every start and on every machine,
whatever else there is: nothing is asked, and no shard has to know of another. From 8 shares to 9 about a ninth of the
ids move, all of them to the new share (the jump consistent hash of Lamping and Veach, 2014).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from sources.offsets import LogId

TABLE: Final = "table/"
"""Before the name of a typed table; no log's id begins so."""

_TEXT: Final = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")
_BITS_64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Shard:
    """The share `number`, from 1 on, of `of` shares. Raises ValueError unless ``1 <= number <= of``."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"no share: {self.number} of {self.of}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse ``"2/8"``. Raises ValueError that says what a shard looks like."""
        match = _TEXT.fullmatch(text.strip())
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"the number of a share and how many there are, as 1/8 to 8/8, and not {text!r}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, dealt: LogId | str) -> bool:
        """Whether it falls into this share: a log, or a topic for what belongs to no partition, or ``table/<name>``."""
        return share_of(str(dealt), self.of) == self.number


def share_of(dealt: str, shares: int) -> int:
    """Return which of `shares`, from 1 on, an id falls into."""
    digest = hashlib.blake2b(dealt.encode(), digest_size=8).digest()
    return jumped(int.from_bytes(digest, "big"), shares) + 1


def jumped(key: int, buckets: int) -> int:
    """Return the bucket, from 0 on, of a key of 64 bits.

    In whole numbers throughout, so that no machine rounds differently.
    """
    bucket, jump = 0, 0
    while jump < buckets:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & _BITS_64
        jump = ((bucket + 1) << 31) // ((key >> 33) + 1)
    return bucket
