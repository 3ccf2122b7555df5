"""A small file beside the tables, which is replaced atomically: readers see the old content or the new.

It is not synced: a crash may lose what was written last.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs

from sinks.storage.place import placed
from sources.errors import LogtwinError


class SmallFile:
    """The file at `path`, a local path or a URI. Every method raises OSError if its place cannot be reached."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def names_in(cls, folder: str) -> list[str]:
        """The names of the files in `folder`, without hidden ones; none if there is no such folder."""
        filesystem, inside, _ = cls(folder)._open()
        listed = filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True))
        return [one.base_name for one in listed if one.is_file and not one.base_name.startswith(".")]

    def read(self) -> bytes | None:
        """The content; None if there is no file."""
        filesystem, path, _ = self._open()
        try:
            with filesystem.open_input_stream(path) as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the content atomically: readers see the old content or the new, also after a kill."""
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
        filesystem, path, _ = self._open()
        with suppress(FileNotFoundError):
            filesystem.delete_file(path)

    def _open(self) -> tuple[pafs.FileSystem, str, Path | None]:
        try:
            place = placed(self._path)
            return *place.open(), place.local
        except LogtwinError as error:
            raise OSError(str(error)) from error
