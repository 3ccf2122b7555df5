"""Which records of transactions are read. Kafka's isolation level (KIP-98)."""

from __future__ import annotations

from enum import Enum


class Isolation(Enum):
    """The values are those of Kafka's protocol."""

    READ_UNCOMMITTED = 0
    """Every record up to the high watermark, also of transactions that were aborted or are open."""

    READ_COMMITTED = 1
    """Up to the last stable offset, below which no transaction is open, and nothing of aborted ones."""
