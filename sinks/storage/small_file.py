"""A small file beside the tables, for who looks there by its name: whole as it was before, or as it is now.

Nothing of it is synced: a crash may forget what was written last.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs

from sinks.storage.place import placed
from sources.errors import LogtwinError


class SmallFile:
    """The file at `path`, of a local disk or a URI. Every method raises OSError where its place cannot be reached."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def names_in(cls, folder: str) -> list[str]:
        """Of the files in `folder`, none where there is no such."""
        filesystem, inside, _ = cls(folder)._open()
        listed = filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True))
        return [one.base_name for one in listed if one.is_file and not one.base_name.startswith(".")]

    def read(self) -> bytes | None:
        """None where there is no file."""
        filesystem, path, _ = self._open()
        try:
            with filesystem.open_input_stream(path) as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """At once: who reads sees what was there before, or this, and so it is after a kill."""
        filesystem, path, local = self._open()
        if local is None:
            with filesystem.open_output_stream(path) as stream:
                stream.write(content)
            return
        local.parent.mkdir(parents=True, exist_ok=True)
        new = local.with_name(f".{local.name}.{uuid.uuid4().hex}")
        new.write_bytes(content)
        new.replace(local)

    def remove(self) -> None:
        """Of what is there no more nothing is left to do."""
        filesystem, path, _ = self._open()
        with suppress(FileNotFoundError):
            filesystem.delete_file(path)

    def _open(self) -> tuple[pafs.FileSystem, str, Path | None]:
        try:
            place = placed(self._path)
            return *place.open(), place.local
        except LogtwinError as error:
            raise OSError(str(error)) from error
