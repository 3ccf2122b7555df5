from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sources.errors import BelowMinimum, ConfigurationError, MasterUnreachable
from sources.group.offsets import GroupOffset
from sources.offsets import Offset, OffsetRange

ONE = OffsetRange(Offset(5), Offset(9))
TWO = OffsetRange(Offset(0), Offset(2**62))
GONE = BelowMinimum("gone", log="rocketmq/c", offset=5, hint="Two\nlines.")
AWAY = MasterUnreachable("away", log="rocketmq/d")
THERE = GroupOffset(7, {"rocketmq/a": ONE, "rocketmq/b": TWO}, {"rocketmq/c": GONE, "rocketmq/d": AWAY})


def text(offset: GroupOffset) -> str:
    return json.dumps(offset.to_json())


def test_an_offset_comes_back_from_its_text() -> None:
    back = GroupOffset.from_json(json.loads(text(THERE)))
    assert (back.number, back.batches) == (7, THERE.batches)
    assert {log: type(error) for log, error in back.errors.items()} == {
        "rocketmq/c": BelowMinimum,
        "rocketmq/d": MasterUnreachable,
    }
    assert [error.facts() for error in back.errors.values()] == [GONE.facts(), AWAY.facts()]


def test_an_offset_has_one_text_and_a_line() -> None:
    turned = GroupOffset(7, {"rocketmq/b": TWO, "rocketmq/a": ONE}, {"rocketmq/d": AWAY, "rocketmq/c": GONE})
    assert text(THERE) == text(turned) == text(GroupOffset.from_json(json.loads(text(THERE))))
    assert "\n" not in text(THERE)
    assert text(THERE) != text(replace(THERE, number=8))


def test_the_checkpoint_of_another_source_is_said() -> None:
    with pytest.raises(ConfigurationError, match="another source"):
        GroupOffset.from_json({"offset": 5})


def test_a_stream_begins_with_nothing() -> None:
    assert GroupOffset(0).to_json() == {"number": 0, "batches": {}, "errors": {}}
