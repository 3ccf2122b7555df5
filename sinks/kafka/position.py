"""The positions of all partitions of one topic, kept by table ``kafka_log`` itself, and the right to move them.

What stands there is a `sinks.kafka.state.TopicState`, owned as `sinks/owned.py` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from sinks.files import DataFile
from sinks.kafka.state import TopicState
from sinks.kernel import KernelTable, Snapshot
from sinks.owned import Found, OwnedState
from sources.offsets import LogId


class TopicTable(OwnedState[TopicState]):
    """Table ``kafka_log``, as far as one topic is concerned. `log_id` is the topic's. Driver only."""

    def __init__(self, spark: SparkSession, path: str, log_id: LogId) -> None:
        self._kafka_log = KernelTable(spark, path)
        self._app_id = f"logtwin/{log_id}"
        super().__init__(self._kafka_log, log_id, TopicState.from_json, TopicState.fresh, self._counted)

    def commit(self, found: Found[TopicState], state: TopicState, files: Sequence[DataFile] = ()) -> None:
        """Move the topic from `found` to `state`, one commit further, together with `files`.

        Raises TakenOver where the topic is not as `found` says any more; nothing of it is in the table then.
        """

        def attempt(on: Snapshot) -> None:
            transaction = (self._app_id, state.commits)
            self._kafka_log.commit(on, files, transaction=transaction, domains={self.domain: state.as_json()})

        self.move(found, state, attempt)

    def run_hooks(self) -> None:
        self._kafka_log.run_hooks()

    def _counted(self, state: TopicState | None) -> tuple[str, int | None]:
        return self._app_id, (state.commits or None) if state is not None else None
