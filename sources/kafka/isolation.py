"""Which records of transactions to read: Kafka's isolation level (KIP-98)."""

from __future__ import annotations

from enum import Enum


class Isolation(Enum):
    """The isolation level; the values are those of Kafka's protocol."""

    READ_UNCOMMITTED = 0
    """Every record up to the high watermark, including those of aborted and open transactions."""

    READ_COMMITTED = 1
    """Records up to the last stable offset, below which no transaction is open, without those of aborted ones."""
