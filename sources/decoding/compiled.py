"""Functions that numba compiles to machine code, for loops over bytes that no operation on whole columns can replace.

Importing this module takes a quarter of a second and 150 MiB. So it is imported only where and when many bytes are
decoded, and once before Spark's Python daemon forks (`pipeline.spark.python_daemon`). Who plans imports it only for a
log by path that has many records which nobody has looked at (`sources.rocketmq.files.log_end`).

A function is compiled when its module is imported, which takes seconds. The machine code is kept in the module's
`__pycache__`, or in the user's cache if that is not writable, and is reused as long as the text of that one file is
unchanged. numba looks at no other file, so whatever a compiled function calls must be in its own module.

Bounds are not checked: a function must never use an index that is out of range, whatever the bytes say. Tests make
numba check them (NUMBA_BOUNDSCHECK=1). Compiled functions release the interpreter's lock.
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
    """Finds the cached machine code of a module that is imported from a wheel, as on the workers of a cluster.

    numba itself knows only archives named ``.zip``, and would compile again in each worker.
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
            # No writable folder, no space left in it, or a crash left half a file there.
            return cast(_F, numba.njit(arguments, nogil=True)(function))

    return compile_it


def inlined(function: _F) -> _F:
    """Inline a small function into the compiled functions of its module that call it."""
    return cast(_F, numba.njit(inline="always")(function))
