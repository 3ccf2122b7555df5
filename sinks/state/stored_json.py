"""Dataclasses as the JSON of domain metadata, and back: the keys are the fields, in their order. Pure.

Pydantic makes plain values, and the standard library their text: it escapes every character beyond ASCII, also the lone
surrogates of a file's name, which pydantic would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

_T = TypeVar("_T")


class StoredJson(Generic[_T]):
    """Writes and reads values of a dataclass. Keys of fields without a default, and those in `always`, must be there.

    All fields are written; without `always` only those that have not their default.
    """

    def __init__(self, kind: type[_T], always: Sequence[str] = ()) -> None:
        self._kind = kind
        self._always = frozenset(always)

    @cached_property
    def _adapter(self) -> TypeAdapter[_T]:
        """Made on first use, because that takes ten milliseconds."""
        return TypeAdapter(self._kind)

    def text_of(self, value: _T) -> str:
        values = self._adapter.dump_python(value, mode="json", by_alias=True, exclude_defaults=not self._always)
        return json.dumps(values, separators=(",", ":"))

    def read(self, text: str) -> _T:
        """The inverse of `text_of`. Raises TypeError or ValueError for what it did not write."""
        return self.of(json.loads(text))

    def of(self, values: Any) -> _T:
        """The value that has these `values`. Raises as `read` does."""
        if not self._always <= set(values):
            raise ValueError(f"expected the keys {', '.join(sorted(self._always))}")
        return self._adapter.validate_python(values)
