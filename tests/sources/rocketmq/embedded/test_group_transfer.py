"""Waiters on what slaves have acknowledged. No sockets: the test says what is acknowledged."""

import asyncio
import itertools
import random
from collections.abc import Iterable

import pytest

from sources.offsets import Offset
from sources.rocketmq.embedded.double_write import GroupTransfer
from tests.sources.rocketmq.embedded.embedded import scenario

NEVER_S = 3600.0


class Group:
    """A group transfer, who waits in it, and the answers in the order they were given."""

    def __init__(self, timeout_s: float = NEVER_S) -> None:
        self.acknowledged = 0
        self.transfer = GroupTransfer(lambda: Offset(self.acknowledged), timeout_s)
        self.answers: list[tuple[str, bool]] = []
        self.waiting: dict[str, asyncio.Task[None]] = {}

    async def put(self, name: str, end: int) -> None:
        """Someone comes to wait for `end`; returns when it waits, or has been answered."""
        self.waiting[name] = asyncio.create_task(self._wait(name, end))
        await settle()

    async def _wait(self, name: str, end: int) -> None:
        self.answers.append((name, await self.transfer.until(Offset(end))))

    async def acknowledge(self, offset: int) -> None:
        self.acknowledged = offset
        self.transfer.wake()
        await settle()


async def settle() -> None:
    """Let everything that can go on now go on."""
    for _ in range(5):
        await asyncio.sleep(0)


@scenario
async def test_an_end_that_is_acknowledged_is_answered_at_once() -> None:
    """HA-26, HA-30: done when what is acknowledged is at or above the end, with the result true."""
    group = Group()
    group.acknowledged = 100
    await group.put("below", 99)
    await group.put("equal", 100)
    await group.put("above", 101)
    assert group.answers == [("below", True), ("equal", True)]
    await group.acknowledge(101)
    assert group.answers[2:] == [("above", True)]


@scenario
async def test_lower_and_equal_reports_answer_nobody() -> None:
    """HA-06, HA-26: who waits for 120 goes on waiting, up to one byte less. HA-07, HA-27: then it hears at once."""
    group = Group()
    await group.put("a", 120)
    for offset in (100, 50, 100, 119):
        await group.acknowledge(offset)
        assert (group.answers, len(group.transfer)) == ([], 1)
    await group.acknowledge(120)  # nothing is polled, and no limit is near: only the wake can have answered
    assert group.answers == [("a", True)]


@scenario
async def test_one_acknowledgement_answers_in_the_order_of_the_log() -> None:
    """HA-24: first come, first served; those for the same end in the order they came."""
    group = Group()
    for name, end in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("d", 40)):
        await group.put(name, end)
    await group.acknowledge(30)
    assert [name for name, _ in group.answers] == ["a", "b1", "b2", "c"]


@scenario
async def test_every_wait_has_a_limit_of_its_own() -> None:
    """HA-28: without an acknowledgement the answer is false, and the limit counts from each one's start."""
    clock = asyncio.get_running_loop().time
    group = Group(timeout_s=0.2)
    started = clock()
    await group.put("a", 10)
    await asyncio.sleep(0.1)
    await group.put("b", 5)
    await group.waiting["a"]
    assert clock() - started >= 0.19
    await group.waiting["b"]
    assert clock() - started >= 0.29
    assert group.answers == [("a", False), ("b", False)]
    assert len(group.transfer) == 0
    await group.acknowledge(10)  # too late, for nobody
    assert len(group.answers) == 2


@scenario
async def test_stopping_answers_everyone_and_whoever_comes_later() -> None:
    """HA-32: nobody keeps the shutdown waiting."""
    group = Group()
    for name, end in (("a", 10), ("b", 20)):
        await group.put(name, end)
    group.transfer.stop()
    await group.put("later", 30)
    assert group.answers == [("a", False), ("b", False), ("later", False)]
    assert len(group.transfer) == 0


@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_everyone_gets_exactly_one_answer_whatever_happens(seed: int) -> None:
    """HA-24, HA-25, HA-29, HA-31: puts, acknowledgements, cancellations in any order; beside a list searched whole."""
    chance = random.Random(seed)
    group = Group()
    expected: dict[str, bool | None] = {}
    ends: dict[str, int] = {}
    for n in itertools.count():
        if n == 1000:
            break
        action = chance.random()
        open_names = [name for name, answer in expected.items() if answer is None]
        if action < 0.6 or not open_names:
            name, end = str(n), chance.randrange(1, 5000)
            ends[name], expected[name] = end, True if group.acknowledged >= end else None
            await group.put(name, end)
        elif action < 0.7:
            gone = chance.choice(open_names)
            group.waiting[gone].cancel()
            del expected[gone], ends[gone]
            await settle()
        else:
            await group.acknowledge(chance.randrange(0, 5000))
            expected |= released(open_names, ends, group.acknowledged)
        assert len(group.transfer) == sum(answer is None for answer in expected.values())
    group.transfer.stop()
    await settle()
    assert len(group.answers) == len(expected)
    assert dict(group.answers) == {name: answer is not None for name, answer in expected.items()}


def released(names: Iterable[str], ends: dict[str, int], acknowledged: int) -> dict[str, bool | None]:
    return {name: True for name in names if ends[name] <= acknowledged}
