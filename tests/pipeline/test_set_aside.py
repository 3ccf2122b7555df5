"""pipeline.job.set_aside: an error of a partition is its own, and what becomes of it."""

import math

import pytest

from pipeline.job.set_aside import SetAside
from sources.errors import BelowMinimum, LogtwinError, MasterRefused, TakenOver

LOGS = [f"kafka/c/t/{number}" for number in range(3)]
REFUSED, GONE = MasterRefused("no leader"), BelowMinimum("gone")


def aside(*passed: LogtwinError) -> SetAside:
    return SetAside(lambda error: None if error in passed else error, 4.0)


def test_a_partition_without_a_leader_is_tried_again_after_longer_waits_until_it_moves() -> None:
    one = aside()
    now_s = 0.0
    for wait_s in (1.0, 2.0, 4.0, 4.0):
        assert one.note(LOGS[0], REFUSED)
        assert (one.is_decided, LOGS[0] in one, one.is_due(now_s)) == (False, True, True)
        one.decide(now_s, can_try_again=True)
        one.settle()
        assert (one.is_decided, LOGS[0] in one, LOGS[1] in one) == (True, True, False)
        assert [one.is_due(now_s + wait_s + late_s) for late_s in (-0.1, 0.0)] == [False, True]
        now_s += wait_s
        one.decide(now_s, can_try_again=True)
        assert LOGS[0] not in one
    assert [one.moved(log_id) for log_id in (LOGS[1], LOGS[0], LOGS[0])] == [False, True, False]


@pytest.mark.parametrize(("error", "can_try_again"), [(GONE, True), (REFUSED, False)])
def test_what_no_retry_helps_stays_out_even_if_the_topic_begins_again(
    error: LogtwinError, can_try_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = aside()
    for log_id in LOGS[:2]:
        one.note(log_id, error)
    one.decide(0.0, can_try_again=can_try_again)
    one.begin_again()
    assert [log_id in one for log_id in LOGS] == [True, True, False]
    assert not one.is_due(math.nextafter(math.inf, 0.0))
    (said,) = caplog.records
    assert (said.levelname, "(and of 1 more partitions)" in said.message) == ("ERROR", True)


def test_what_is_passed_goes_on_and_what_waits_begins_again_with_its_topic() -> None:
    one = aside(GONE)
    one.note(LOGS[0], GONE)
    one.note(LOGS[1], REFUSED)
    one.decide(0.0, can_try_again=True)
    one.settle()
    assert [log_id in one for log_id in LOGS] == [False, True, False]
    one.begin_again()
    assert not one


def test_what_keeps_all_partitions_or_names_another_run_is_the_topics() -> None:
    one = aside()
    assert not one.note(LOGS[0], TakenOver("another run"))
    for log_id, error in zip(LOGS, (GONE, REFUSED, GONE), strict=True):
        assert one.of_all(LOGS) is None
        one.note(log_id, error)
    assert one.of_all(LOGS) is REFUSED  # which passes: the topic is waited for


def test_what_is_to_be_tried_again_keeps_the_topic_from_failing_with_the_others() -> None:
    one = aside()
    for noted in ({LOGS[0]: REFUSED}, {LOGS[1]: GONE, LOGS[2]: GONE}):
        for log_id, error in noted.items():
            one.note(log_id, error)
        assert one.of_all(LOGS) is None
        one.decide(0.0, can_try_again=True)
        one.settle()
    assert one.error is GONE  # not the one that passes
    one.note(LOGS[0], REFUSED)
    assert one.of_all(LOGS) is REFUSED


def test_the_error_is_that_of_what_stays_out() -> None:
    one = aside(lost := BelowMinimum("passed"))
    for log_id, error in zip(LOGS, (GONE, REFUSED, lost), strict=True):
        one.note(log_id, error)
    one.decide(0.0, can_try_again=True)
    one.settle()
    one.decide(1.0, can_try_again=True)
    assert (one.moved(LOGS[1]), one.error) == (True, GONE)
