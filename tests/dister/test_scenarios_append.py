"""Scenarios 1 to 10: what an entry does to the replica, in which order, and once; and 14, a log of several files.

11, 12, 13 and 15, lines that are torn, glued or short and files that are missing, are the reader's:
tests/sources/dister/test_log.py.
"""

import pytest

from sinks.batch.proof import BatchStep
from sources.dister.embedded.leader_log import entries_of
from sources.dister.entries import ACT_REMOVE, ACT_SET
from sources.dister.layout import ENTRY_LOG
from sources.errors import CorruptRecord, Gap
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import append_log, dirty, leader, write_log


def test_scenario_01_of_an_empty_leader_nothing_comes_and_a_file_may_come_later(twin: Twin) -> None:
    """No file is no error. DI-58: where the replica is empty, there is nothing to check (scenario 18)."""
    twin.replicate()
    assert twin.position is None
    twin.assert_equal([])
    write_log(twin.folder, leader(3))
    twin.replicate()
    twin.assert_equal()
    assert (twin.epoch, twin.went_back_to) == (0, None)


def test_scenario_02_keys_are_set_removed_and_set_again(twin: Twin) -> None:
    """DI-43, DI-44, DI-47, and DI-26: the same write twice is harmless."""
    with twin.leader() as node:
        node.set({"a": "1", "b": "1"})
        node.remove(["a"])
        node.remove(["nobody"])
        twin.take()
        assert twin.kv() == {"b": "1"}
        node.set({"a": "2"})
        node.set({"c": "1"})
        node.set({"c": "2"})
        node.set({"c": "2"})
    twin.replicate()
    assert twin.kv() == {"a": "2", "b": "1", "c": "2"}
    twin.assert_equal()


def test_scenario_03_ids_that_are_far_apart_are_no_gap(twin: Twin) -> None:
    """DI-36: nothing says that an index has to be there. DI-22: failed writes use theirs."""
    write_log(twin.folder, [*leader(3), *leader(1, first=9)])
    twin.take()
    append_log(twin.folder, dirty(500, 0))
    twin.replicate()
    twin.assert_equal()
    assert twin.went_back_to is None


def test_scenario_04_a_batch_that_does_not_continue_the_replica_is_refused(twin: Twin) -> None:
    """DI-30, DI-33, DI-56: nothing of it is written; the right one is, once."""
    ids = leader(6)
    write_log(twin.folder, ids)
    twin.take(0, ids[2] + 1)
    with pytest.raises(Gap) as caught:
        twin.take(ids[3] + 1, ids[5] + 1)
    assert (caught.value.expected, caught.value.found) != (None, None)
    assert twin.position == ids[2] + 1
    twin.assert_equal(list(entries_of(twin.folder))[:3])
    twin.replicate()
    twin.assert_equal()


def test_scenario_05_a_crash_between_the_tables_doubles_and_loses_nothing(twin: Twin) -> None:
    """DI-34, DI-35: after each step, with the batch that comes again. DI-52: it is in the table as a whole, or not."""
    written = 0
    for step in (BatchStep.FILES, BatchStep.COMMIT, BatchStep.ACKNOWLEDGE, BatchStep.LEDGER):
        in_map = len(twin.kv())
        append_log(twin.folder, leader(7, first=written + 1))
        with pytest.raises(Killed):
            twin.take(0, on_step=dying_after(1, step))
        assert len(twin.ids()) == (written if step is BatchStep.FILES else written + 7)
        assert len(twin.kv()) == (in_map + 7 if step is BatchStep.LEDGER else in_map)
        twin.take(0)
        written += 7
        twin.assert_equal()
    twin.replicate()
    twin.assert_equal()


def test_scenario_06_of_a_batch_that_overlaps_only_what_is_new_comes_in(twin: Twin) -> None:
    """DI-51, DI-35. DI-50, DI-55: one that ends at the replica's end, or before, or has nothing, changes nothing."""
    ids = leader(6)
    write_log(twin.folder, ids)
    twin.take(0, ids[2] + 1)
    twin.take(0, ids[1] + 1)
    twin.take(0, ids[2] + 1)
    twin.take(ids[2] + 1, ids[2] + 1)
    assert twin.ids() == ids[:3]
    twin.take(ids[0] + 1, ids[5] + 1)
    twin.assert_equal()


def test_scenario_07_ids_that_go_back_are_passed_or_corrupt(twin: Twin) -> None:
    """DI-35, D-11: a leader that lost its data file begins anew with low ids."""
    write_log(twin.folder, leader(5))
    with twin.leader() as node:
        node.append_raw(b'10007,300,{"key 1":"expired"}\n30007,310,["key 2"]\n')
        node.set({"key 5": "new"})
    twin.take()
    twin.assert_equal()
    assert twin.kv()["key 1"] == f"value of {leader(1)[0]}"

    with twin.leader() as node:
        node.append_raw(b'31111,300,{"key 3":"another"}\n')
        node.set({"key 5": "newer"})
    before = twin.position
    with pytest.raises(CorruptRecord, match="31111"):
        twin.replicate()
    assert twin.position == before


def test_scenario_08_an_unknown_act_is_in_the_log_and_changes_no_key(twin: Twin) -> None:
    """DI-45."""
    with twin.leader() as node:
        node.set({"a": "1"})
        last = node.append_act(999, b'{"a":"2","b":["c"]}')
        twin.take()
        assert twin.position == last + 1
        assert twin.kv() == {"a": "1"}
        twin.assert_equal()


def test_scenario_09_items_of_another_shape_are_never_half_applied(twin: Twin) -> None:
    """DI-46, DI-32, DI-53: the log stops before them, or goes on behind and has them in quarantine."""
    with twin.leader() as node:
        node.set({"a": "1"})
        twin.take()
        good = node.set({"b": "1"})
        for act, items in ((ACT_SET, b'{"b":"2","c":3}'), (ACT_SET, b'["b"]'), (ACT_REMOVE, b'["b",1]')):
            node.append_act(act, items)
        after = node.set({"d": "1"})
    with pytest.raises(CorruptRecord):
        twin.replicate()
    assert twin.position == good + 1  # what is sound before them is there
    assert twin.kv() == {"a": "1", "b": "1"}

    twin.replicate(on_loss="record")
    assert twin.ids()[1:] == [good, after]
    assert twin.kv() == {"a": "1", "b": "1", "d": "1"}
    assert [row["condition"] for row in twin.incidents()] == ["undecodable"]


def test_scenario_10_values_of_any_size_and_any_text(twin: Twin) -> None:
    """D-7: dister's reader ends at a line of more than 4096 bytes. DI-40: the lines come back byte for byte."""
    values = {str(size): "x" * size for size in (5_000, 70_000, 5_000_000)}
    texts = {
        "unicode": "ключ 🚲 \u2028 é",
        "quotes": 'a "b" \\"c\\"',
        "newlines": "one\ntwo\r\n\\n",
        "<&>": "<a href='x'>&amp;</a>",
    }
    with twin.leader() as node:
        for key, value in (values | texts).items():
            node.set({key: value})
        node.set(texts)
    twin.take()
    twin.assert_equal()
    assert twin.kv() == values | texts


@pytest.mark.parametrize(("first", "files"), [(99_998, ["0/0", "0/1"]), (9_999_998, ["0/99", "1/100"])])
def test_scenario_14_the_log_goes_on_in_the_next_file(twin: Twin, first: int, files: list[str]) -> None:
    """DI-41: at index 100,000, and in another folder after a hundred files."""
    ids = leader(5, first=first)
    write_log(twin.folder, ids)
    entry_log = twin.folder / ENTRY_LOG
    assert sorted(str(path.relative_to(entry_log)) for path in entry_log.glob("*/*")) == files
    twin.take()
    assert twin.ids() == ids
    twin.assert_equal()
