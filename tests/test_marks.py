"""tests.marks, on which it depends that no test is left out which should run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marks import left_out, marks


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
