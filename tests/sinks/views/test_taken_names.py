"""A name of ours that a catalog has for something else, without Spark; with it: test_registration.py."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from sinks.views.catalog import Catalog
from sources.errors import ConfigurationError


def test_no_view_is_made_where_a_table_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Catalog, "_described", lambda self, name: {"Type": "EXTERNAL"})
    spark: Any = Mock()
    with pytest.raises(ConfigurationError, match=r"the name lake\.\w+ is taken") as raised:
        Catalog(spark, "lake", "/lake").register([], [])
    assert raised.value.found == "a table"
    said = [call.args[0] for call in spark.newSession.return_value.sql.call_args_list]
    assert said == ["CREATE SCHEMA IF NOT EXISTS `lake`", "USE `lake`"]
