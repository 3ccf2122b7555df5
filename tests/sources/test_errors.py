import pickle
import traceback

import pytest

from sources import errors
from sources.errors import (
    CorruptRecord,
    Gap,
    LogtwinError,
    MasterError,
    MasterSilent,
    MasterUnreachable,
    across_processes,
    error_from,
    find_error,
    of_log,
    told_by_spark,
)
from sources.readable import visible


def a_gap() -> Gap:
    return Gap(
        "the batch starts above the position",
        log="rocketmq/a", offset=100, expected=100, found=130, hint="Delete the checkpoint.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            a_gap(),
            "rocketmq/a at offset 100: the batch starts above the position; expected 100, found 130. Delete the "
            "checkpoint.",
        ),
        (LogtwinError("it broke"), "it broke"),
        (LogtwinError("it broke", log="rocketmq/a"), "rocketmq/a: it broke"),
        (LogtwinError("it broke", offset=0), "at offset 0: it broke"),
        (LogtwinError("it broke", found="x"), "it broke; found x"),
        (LogtwinError("it broke", expected="y"), "it broke; expected y"),
    ],
)
def test_the_message_says_where_what_expected_found_and_what_to_do_as_far_as_it_is_known(
    error: LogtwinError, message: str
) -> None:
    assert str(error) == message


def test_an_error_survives_pickling_with_its_type_and_facts() -> None:
    copy = pickle.loads(pickle.dumps(a_gap()))  # noqa: S301 - our own bytes
    assert type(copy) is Gap
    assert copy.facts() == a_gap().facts()
    assert type(error_from({"type": "FromTheFuture", "problem": "x"})) is LogtwinError  # of another version


def test_the_last_error_in_a_text_counts_and_none_is_none() -> None:
    text = f"{a_gap().token()} then {MasterUnreachable('gone').token()}"
    assert type(find_error(text)) is MasterUnreachable
    assert find_error("an ordinary traceback") is None


def test_forged_error_tokens_hide_no_error() -> None:
    """A broker's remark may say anything, in a traceback, too."""
    made_up = ["logtwin-error:AAAA:", "logtwin-error:bnVsbA==:", "logtwin-error:e30=:", "logtwin-error:a:"]  # null, {}
    found = find_error(" ".join([a_gap().token(), *made_up]))
    assert found is not None
    assert found.facts() == a_gap().facts()
    assert find_error(" ".join(made_up)) is None


def test_what_others_wrote_is_told_up_to_a_length() -> None:
    error = MasterUnreachable("gone", found="<" + "x" * 16_000_000 + ">", expected=["y"] * 1_000_000, hint="Wait.")
    assert len(str(error)) < 10_000
    assert str(error).endswith("x>. Wait.")
    assert "16,000,002 characters" in str(error.found)
    assert error.found is not None
    assert error.found.startswith("<x")
    assert error.at("rocketmq/a").facts() == {**error.facts(), "log": "rocketmq/a"}


def test_code_that_does_not_know_its_log_has_it_added() -> None:
    error = CorruptRecord("magic", offset=5).at("rocketmq/a")
    assert type(error) is CorruptRecord
    assert (error.log, error.offset) == ("rocketmq/a", 5)
    assert a_gap().at("rocketmq/b").log == "rocketmq/a"


def test_exit_codes_and_what_is_worth_a_retry() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LogtwinError)]
    assert {kind.__name__: kind.exit_code for kind in kinds} == {
        "LogtwinError": 1, "ConfigurationError": 2, "NoSuchTopic": 2, "QueryError": 2,
        "MasterError": 3, "MasterUnreachable": 3, "MasterSilent": 3, "MasterRefused": 3, "MasterReplaced": 3,
        "NobodyListens": 3,
        "AccessDenied": 3, "ProtocolViolation": 3, "OffsetOutOfRange": 3, "BelowMinimum": 3, "AboveMaximum": 3,
        "LogError": 4, "CorruptRecord": 4, "ChecksumMismatch": 4, "UnprovenEnd": 3, "SegmentError": 4,
        "MissingSegment": 4, "UnfitMessage": 4,
        "Rewritten": 4, "FailedOver": 4, "EpochsContradict": 4, "Recreated": 4,
        "ReplicaError": 5, "Gap": 5, "CoverageError": 5, "WorkerLost": 6, "OutOfMemory": 5, "StorageUnreachable": 6,
        "RegistryUnreachable": 6, "RowsReplaced": 5, "TakenOver": 5,
        "AlreadyRunning": 5, "HeldElsewhere": 6, "NotAlone": 6, "RepairPending": 5, "WayBackPending": 5, "Divergent": 5,
    }  # fmt: skip
    assert {kind.__name__ for kind in kinds if kind.is_transient} == {
        "UnprovenEnd", "MasterUnreachable", "MasterSilent", "MasterRefused", "MasterReplaced", "NobodyListens",
        "HeldElsewhere", "NotAlone", "WorkerLost", "StorageUnreachable", "RegistryUnreachable",
    }  # fmt: skip


def test_an_error_crosses_processes_as_text() -> None:
    with pytest.raises(RuntimeError) as caught, across_processes():
        raise a_gap()
    assert str(caught.value).startswith(str(a_gap()))
    found = find_error(str(caught.value))
    assert type(found) is Gap
    assert found.facts() == a_gap().facts()


def test_what_people_read_in_spark_is_the_message_alone() -> None:
    """In a traceback: no packed error behind it, and no stack of what led to it."""

    def fail() -> None:
        raise a_gap() from ValueError("what led to it")

    with pytest.raises(Gap) as caught, told_by_spark():
        fail()
    text = "".join(traceback.format_exception(caught.value))
    assert text.endswith(f"Gap: {a_gap()}\n")
    assert "logtwin-error" not in text
    assert "what led to it" not in text
    assert "in fail" not in text


def test_an_error_of_one_log_names_it_even_if_unexpected() -> None:
    known = MasterSilent("nothing comes", offset=7)
    assert of_log(known, "rocketmq/a").facts() == {**known.facts(), "log": "rocketmq/a"}
    assert of_log(known.at("rocketmq/b"), "rocketmq/a").log == "rocketmq/b"
    try:
        raise KeyError("a defect")
    except KeyError as error:
        found = of_log(error, "rocketmq/a")
    assert (type(found), found.log, found.is_transient) == (LogtwinError, "rocketmq/a", False)
    assert str(found.found).endswith("KeyError: 'a defect'")
    assert "report it" in str(found.hint)


def test_what_a_master_says_forges_no_line_of_the_message() -> None:
    said = "no\n12:00 INFO all is well\x1b[2J"
    error = MasterError("it refuses", log="rocketmq/a", found=said)
    assert str(error) == r"rocketmq/a: it refuses; found no\n12:00 INFO all is well\x1b[2J"
    assert error.facts()["found"] == said


# what others wrote, shown to people


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order 4711, größe, 消息, 😀, a\u3000b", "order 4711, größe, 消息, 😀, a\u3000b"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb\tc\x00\x7f\x9b", r"a\rb\tc\x00\x7f\x9b"),
        ("fdp.\u202etxt\u2066", r"fdp.\u202etxt\u2066"),
        ("one\u2028two\x85three", r"one\u2028two\x85three"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_control_and_hidden_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == visible(text, lines=True) == shown
    assert (visible("one\ntwo"), visible("one\ntwo", lines=True)) == (r"one\ntwo", "one\ntwo")
