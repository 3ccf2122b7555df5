"""tests.marks and tests.parts, on which it depends that no test is left out which should run."""

from pathlib import Path

import pytest

from tests.marks import left_out, marks
from tests.parts import part


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", set()),
        ("soak", set()),
        ("not spark", {"spark"}),
        ("not spark and not peer and job", {"spark", "peer"}),
        ("(nightly or airflow) and not soak", {"soak"}),
        ("nightly or not soak", set()),
        ("not (spark or not peer)", set()),
        ("not (spark and (job or not peer))", set()),
    ],
)
def test_a_mark_is_left_out_only_if_every_test_must_be_without_it(expression: str, expected: set[str]) -> None:
    assert left_out(expression) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import pytest\n\npytestmark = pytest.mark.spark\n", ["spark"]),
        ("pytestmark = [\n    pytest.mark.peer,\n    pytest.mark.timeout(180),\n]\n", ["peer", "timeout"]),
        ("@pytest.mark.spark\ndef test_one() -> None: ...\n", []),
    ],
)
def test_the_marks_of_a_module_are_those_that_all_its_tests_have(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    module = tmp_path / "test_it.py"
    module.write_text(text)
    assert marks(module) == expected


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_each_module_belongs_to_one_part_and_the_parts_are_of_about_one_size(tmp_path: Path, count: int) -> None:
    modules = [tmp_path / f"test_{number}.py" for number in range(13)]
    for size_bytes, module in enumerate(modules):
        module.write_bytes(bytes(size_bytes))
    parts = [part(reversed(modules), place, count) for place in range(count)]
    assert sorted(module for each in parts for module in each) == sorted(modules)
    sizes = [sum(module.stat().st_size for module in each) for each in parts]
    assert max(sizes) - min(sizes) <= 12
