"""Functions compiled to machine code by numba, for loops over bytes that no operation on whole columns can do.

Importing this takes a quarter of a second and 150 MiB. So it is imported where bytes are decoded and when they are,
once before Spark's Python daemon forks (`pipeline.spark.python_daemon`), and never by what only plans.

A function is compiled when its module is imported, in seconds. The machine code is kept in the module's `__pycache__`,
or in the user's cache where that cannot be written, and loaded as long as the text of that one file is the same. numba
looks at no other file: what a compiled function calls must stand in its own module.

No bounds are checked: a function must not ask for an index that is not there, whatever the bytes say. Tests have numba
check them (NUMBA_BOUNDSCHECK=1). The interpreter's lock is released meanwhile.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core.caching import ZipCacheLocator

__all__ = ["BYTES", "INT32S", "INTS", "OFFSETS", "compiled", "inlined", "types"]

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
INTS = types.Array(types.int64, 1, "C")
INT32S = types.Array(types.int32, 1, "C")
OFFSETS = types.Array(types.int32, 1, "C", readonly=True)  # of an Arrow array

_F = TypeVar("_F", bound=Callable[..., Any])


class WheelCacheLocator(ZipCacheLocator):  # type: ignore[misc]  # numba has no types
    """Where the machine code of a module is kept that is imported out of a wheel, as workers of a cluster do.

    numba itself knows of archives only that are named ``.zip``, and would compile in each worker anew.
    """

    @staticmethod
    def _split_zip_path(py_file: str) -> tuple[str, str]:
        path = Path(py_file)
        wheel = next(parent for parent in path.parents if parent.suffix == ".whl")
        return str(wheel), str(PurePosixPath(path.relative_to(wheel)))

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> WheelCacheLocator | None:
        return cls(py_func, py_file) if ".whl/" in py_file else None


if not numba.config.CACHE_LOCATOR_CLASSES:
    numba.config.CACHE_LOCATOR_CLASSES = ",".join(
        [
            "UserProvidedCacheLocator",
            "InTreeCacheLocator",
            "UserWideCacheLocator",
            "ZipCacheLocator",
            f"{__name__}.{WheelCacheLocator.__name__}",
        ]
    )


def compiled(*arguments: types.Type) -> Callable[[_F], _F]:
    """Compile the decorated function for arguments of these types, and for no others."""

    def compile_it(function: _F) -> _F:
        try:
            return cast(_F, numba.njit(arguments, nogil=True, cache=True)(function))
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
            # No folder that may be written, or none with room left, or one that a crash left with half a file.
            return cast(_F, numba.njit(arguments, nogil=True)(function))

    return compile_it


def inlined(function: _F) -> _F:
    """For a small function that compiled ones of the same module call."""
    return cast(_F, numba.njit(inline="always")(function))
