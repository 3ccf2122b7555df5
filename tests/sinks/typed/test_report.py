"""What tasks tell of fields that have no column is bounded, and columns are found as if it were not."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from sinks.typed.columns import Column, SeenValues, with_found
from sinks.typed.definition import Reading
from sinks.typed.kinds import MOST_CHARACTERS
from sinks.typed.step.report import FoundFields, free_names
from tests.sinks.typed.test_columns import place
from tests.sinks.typed.test_parsing import Task, definition

JSON: dict[str, Any] = {"reading": Reading(), "schema": None}
COLUMNS = (Column("Has", "Has", "string"),)
RENAMED = {"b c": "bc"}


def columns_of(seen: list[SeenValues], most: int) -> list[str]:
    made, _ = with_found(COLUMNS, seen, renamed=RENAMED, masks={}, most=most)
    return [one.name for one in made]


@pytest.mark.parametrize("seed", range(40))
def test_the_first_fields_are_the_columns_that_all_fields_would_make(seed: int) -> None:
    """In any order, from several tasks, with names in upper and lower case, and such as no column can have."""
    chance = random.Random(seed)
    letters = [f"{chance.choice('aAbBcCdD')}{number % 9}" for number in range(30)]
    fields = ["has", "HAS", "offset", "_rest", "b c", "x y", "n" * 300, *letters]
    tasks = [FoundFields(free_names(COLUMNS, RENAMED), 4) for _ in range(3)]
    everything: list[SeenValues] = []
    for offset in chance.sample(range(300), 300):
        field = chance.choice(fields)
        everything.append(SeenValues(field, {"string": place(offset)}))
        chance.choice(tasks).see(field, "string", place(offset))
    told = [one for task in tasks for one in task.first().values()]
    assert len(told) <= 3 * 4
    assert columns_of(told, 5) == columns_of(everything, 5)


def test_a_task_tells_of_as_many_fields_as_can_get_a_column(tmp_path: Path) -> None:
    bodies = [json.dumps({f"f{number}_{at}": 1 for at in range(500)}).encode() for number in range(20)]
    task = Task(tmp_path, definition(**JSON, max_columns=200), *bodies)
    assert list(task.report.seen) == [f"f0_{at}" for at in range(200)]
    assert len(task.rows) == 20


def test_a_report_does_not_grow_with_the_length_of_names(tmp_path: Path) -> None:
    name = "n" * 100_000
    task = Task(tmp_path, definition(**JSON), *(b'{"%d%s":1,"n":2}' % (number, name.encode()) for number in range(20)))
    assert len(pickle.dumps(task.report)) < 20 * MOST_CHARACTERS + 4_000
    assert set(task.report.seen) == {"n"}
    assert [json.loads(row["_rest"]) for row in task.rows] == [{f"{n}{name}": 1, "n": 2} for n in range(20)]
