"""docs/seed-behaviours.md: complete, and true as far as a machine can tell. The tests it names are not run here."""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
DOCUMENT = PROJECT / "docs" / "seed-behaviours.md"

_DI = ((1, 7), (10, 27), (30, 36), (40, 47), (50, 64), (70, 92), (100, 120))
IDS = [
    *(f"HA-{number:02}" for number in range(1, 71)),
    *(f"MS-{number:02}" for number in range(1, 23)),
    *(f"DI-{number:02}" for first, last in _DI for number in range(first, last + 1)),
]
DEFECTS = {
    *(f"HA-{number:02}" for number in (9, 16, 28, 29, 32, 38, 39, 45, 51, 52, 63, 65, 70)),
    *(f"DI-{number:02}" for number in (42, 46, 55, 56, 64, 77, 78, 83, 86, 87, 91, 92, 104, 110, 116)),
}
"""What the original does badly: fixed here, and the fix is tested."""


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    original: str
    here: str
    proof: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """(file, name) of the tests that its proof names."""
        return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", self.proof)


def rows() -> list[Row]:
    lines = [line for line in DOCUMENT.read_text().splitlines() if re.match(r"\| (HA|MS|DI)-\d", line)]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


@functools.cache
def docstrings(file: str) -> dict[str, str]:
    """Name of every test in a file -> its docstring."""
    tree = ast.parse((PROJECT / file).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name: ast.get_docstring(function) or "" for function in functions}


def test_every_behaviour_is_there_once_and_in_order() -> None:
    assert [row.id for row in rows()] == IDS


def test_each_behaviour_is_proven_or_does_not_apply() -> None:
    for row in rows():
        assert row.original, row
        assert row.here, row
        if row.proof.startswith("does not apply: "):
            assert row.id not in DEFECTS
            assert len(row.proof.split()) > 5, f"{row.id}: a reason, and what stands in its place"
        else:
            assert row.tests, row


def test_the_tests_that_prove_one_are_there_and_name_it() -> None:
    said = [(row.id, file, name) for row in rows() for file, name in row.tests]
    assert {name for _, _, name in said if not name.startswith("test_")} == set()
    assert [one for one in said if one[0] not in docstrings(one[1]).get(one[2], "")] == []


def test_every_defect_of_the_original_is_marked_as_one() -> None:
    assert {row.id for row in rows() if row.original.startswith("**defect**")} == DEFECTS
