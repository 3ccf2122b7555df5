"""A partition's part of the session that its topic has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from sources.kafka.session import PartitionSession
from sources.master import Session, SessionState
from sources.master_topic import PartitionPosition
from sources.offsets import Offset

SINCE = datetime(2026, 11, 24, tzinfo=UTC)


class OfTopic:
    """Keeps what it is told."""

    failure = None

    def __init__(self) -> None:
        self.told: list[dict[int, PartitionPosition]] = []
        self.closed = 0

    @property
    def acknowledged(self) -> dict[int, Offset]:
        return {number: position.offset for told in self.told for number, position in told.items()}

    @property
    def state(self) -> SessionState:
        return SessionState(Offset(sum(self.acknowledged.values())), SINCE, reconnects=3, last_error="away")

    def acknowledge(self, positions: Mapping[int, PartitionPosition]) -> None:
        self.told.append(dict(positions))

    def close(self) -> None:
        self.closed += 1


def test_it_tells_its_own_position_with_the_epoch_and_knows_no_other() -> None:
    topic = OfTopic()
    first: Session = PartitionSession(topic, 0)
    second: Session = PartitionSession(topic, 1)
    assert (first.acknowledged, first.state.acknowledged) == (None, None)
    first.acknowledge(Offset(7), 3)
    second.acknowledge(Offset(40))
    assert topic.told == [{0: PartitionPosition(Offset(7), 3)}, {1: PartitionPosition(Offset(40), None)}]
    assert (first.acknowledged, second.acknowledged) == (7, 40)
    assert first.state == SessionState(Offset(7), SINCE, reconnects=3, last_error="away")


@pytest.mark.parametrize(("is_shared", "closed"), [(False, 1), (True, 0)])
def test_who_shares_a_session_does_not_end_it(is_shared: bool, closed: int) -> None:
    topic = OfTopic()
    PartitionSession(topic, 0, is_shared=is_shared).close()
    assert topic.closed == closed
