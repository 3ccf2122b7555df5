"""Values that pass between processes by the thousand, pickled as what their fields hold.

A frozen dataclass with slots is pickled by loops in Python over its fields, which takes three times as long.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def packed(kind: type[T]) -> type[T]:
    """Let values of the dataclass `kind`, which has several fields and no subclasses, be pickled fast."""
    values = attrgetter(*(one.name for one in fields(kind)))  # type: ignore[arg-type] # it is a dataclass

    def reduced(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return kind, values(self)

    kind.__reduce__ = reduced  # type: ignore[assignment]
    return kind
