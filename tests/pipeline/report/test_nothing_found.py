"""Questions that are asked and that nothing answers: a figure of nothing, and no error."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from pipeline.report.facts import Pending, SlowestGroups
from pipeline.report.finding.queries import _Questions


@pytest.mark.parametrize(
    ("name", "nothing"), [("groups", SlowestGroups()), ("transactions", Pending()), ("delays", Pending())]
)
def test_no_rows_are_a_figure_of_nothing(name: str, nothing: object) -> None:
    spark: Any = Mock()
    spark.sql.return_value.toArrow.return_value = pa.table({"state": pa.array([], pa.string())})
    told: list[str] = []
    assert _Questions(spark, [name]).all(told.append) == {name: nothing}
    assert told == ["1 of 1 questions are answered"]
    spark.interruptAll.assert_not_called()


def test_a_question_that_fails_ends_the_others() -> None:
    spark: Any = Mock()
    spark.sql.side_effect = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        _Questions(spark, ["groups"]).all(lambda text: None)
    spark.interruptAll.assert_called_once_with()
