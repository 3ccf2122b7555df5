"""What a person is told of typed tables."""

from __future__ import annotations

from pipeline.inspect.typed_status import LogPlace, TypedStatus, status_lines


def test_topics_without_messages_are_told() -> None:
    place = LogPlace("rocketmq/a", 7, 7, 7, None)
    found = TypedStatus("orders", ("shop", "typo"), "append", 3, 0, (), (place,), unmatched=("typo",))
    assert "  no message of typo so far: logtwin tables check orders says why" in list(status_lines([found]))
