"""``logtwin get`` and ``get-all``: answer from the replica's map as dister's API does from the leader's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.config.configuration import Config
from sinks.delta.delta_log import newest
from sinks.history.key_values import MapPosition, StoredMap, position_at
from sinks.state.fence import state_at
from sinks.tables import KEY_VALUES, LOG_ID, log_table
from sinks.warehouse import absolute
from sources.errors import ConfigurationError
from sources.offsets import LogId, Offset
from sources.registry import open_log

MOST_KEYS: Final = 1000
"""dister's API returns the whole map only up to this many keys."""


@dataclass(frozen=True, slots=True)
class ReplicaMap:
    """The keys and values of one log, as they were when the map was opened."""

    log_id: LogId
    entries: StoredMap
    position: MapPosition
    log_offset: Offset  # position of the table `log`; never below that of the map

    @classmethod
    def opened(cls, config: Config, where: str) -> ReplicaMap:
        """Open the map of the one log of `config` that has one; `config` was read from `where`.

        Raises ConfigurationError if there is no such log, more than one, or nothing is replicated yet; ReplicaError.
        """
        log_id = _log_with_map(config, where)
        folder = KEY_VALUES.path(absolute(config.warehouse))
        version = newest(folder)
        position = None if version is None else position_at(version, log_id)
        if version is None or position is None:
            raise ConfigurationError(
                "nothing of this log is replicated yet",
                log=log_id,
                expected=f"its map in {absolute(config.warehouse)}",
                found="none",
                hint="logtwin replicate brings it.",
            )
        files = [one for one in version.files.values() if one.partition()[LOG_ID.name] == str(log_id)]
        log = newest(log_table(log_id).path(absolute(config.warehouse)))  # read after the map: it is never behind it
        state = None if log is None else state_at(log, log_id)
        at = position.offset if state is None or state.offset is None else state.offset
        return cls(log_id, StoredMap(folder, log_id, files), position, at)

    @property
    def age(self) -> str:
        """The position in the log that the answers reflect, in words."""
        text = f"{self.log_id}: as of offset {self.position.offset}, epoch {self.position.epoch}"
        if self.log_offset == self.position.offset:
            return text
        return f"{text}; the table log is at {self.log_offset}, where the next commit or start brings the map"

    def get(self, key: str) -> str | None:
        """The value of `key`; None if the map does not have it. Raises ReplicaError."""
        return self.entries.value(key)

    def get_all(self, most: int | None = MOST_KEYS) -> dict[str, str]:
        """Every key and its value, in the order of the keys.

        Raises ConfigurationError if there are more than `most`, ReplicaError.
        """
        count = self.entries.count()
        if most is not None and count > most:
            raise ConfigurationError(
                "the map is too large to be printed as a whole",
                log=self.log_id,
                expected=f"at most {most} keys, as dister's API",
                found=count,
                hint="--no-limit prints it all the same.",
            )
        return self.entries.items()


def _log_with_map(config: Config, where: str) -> LogId:
    found = [options.id for options in config.logs if open_log(options).traits.keyed_state is not None]
    if len(found) != 1:
        raise ConfigurationError(
            f"{where}: it is not clear which log is meant",
            expected="one log with keys and values, or --log with one of them",
            found=", ".join(found) or "none",
        )
    return LogId.parse(found[0])
