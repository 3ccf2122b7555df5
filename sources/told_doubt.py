"""What stands behind the end of a log in files and is no record: it is said once, not at each look.

There is no damage at the end of a log: what follows may still be written, or be taken back by whoever writes the log.
So the log ends before it, whatever is to be done about losses, and the reader waits. Damage is only what the log has
gone on behind.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from sources.errors import LogtwinError
from sources.offsets import Offset

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ToldDoubt:
    """The doubt at the end of a log that was told last."""

    _told: tuple[Offset, str] | None = None

    def is_told(self, end: Offset, doubt: LogtwinError) -> bool:
        return self._told == (end, str(doubt))

    def tell(self, path: Path, end: Offset, doubt: LogtwinError, named: LogtwinError | None = None) -> None:
        """Warn that the log in `path` ends at `end`, because of `doubt`; `named` says more of where that is."""
        self._told = (end, str(doubt))
        _logger.warning("%s: until its master goes on, the log ends at %d, before this: %s", path, end, named or doubt)
