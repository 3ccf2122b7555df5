"""A log of a table by itself, moved without a replica."""

from collections.abc import Sequence

from sinks.delta.data_file import DataFile
from sinks.state.log_state import LogState
from sinks.state.log_table import Held, LogTable
from sinks.state.positions import Move, Positions
from sources.offsets import OffsetRange


class OneLog(LogTable):
    def commit(
        self, held: Held, state: LogState, files: Sequence[DataFile] = (), lost: Sequence[OffsetRange] = ()
    ) -> None:
        """Move it from `held` to `state`. Raises TakenOver."""
        mine = held.state or LogState.fresh(state.writer)
        for error in (
            Positions(self._table).commit(held.snapshot, [Move(self.log_id, mine, state, files, lost)]).values()
        ):
            raise error

    def state(self) -> LogState:
        """As the table has it, of a log that was claimed."""
        found = self.read().state
        assert found is not None
        return found
