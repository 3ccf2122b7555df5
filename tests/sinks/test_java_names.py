"""Names of the JVM are asked for once, whoever asks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinks.delta.java_names import JavaNames, java_names


def test_a_name_is_looked_up_once() -> None:
    looked_up: Counter[str] = Counter()

    class Jvm:
        def __getattr__(self, name: str) -> Any:
            looked_up[name] += 1
            return object()

    names = JavaNames(Jvm())
    assert names.some is names.some
    assert looked_up == {"some": 1}


@pytest.mark.spark
def test_packages_and_classes_are_what_py4j_has(spark: SparkSession) -> None:
    names = java_names(spark)
    assert names.java.util is names.java.util
    assert names.java.util.ArrayList is names.java.util.ArrayList
    assert names.java.lang.Integer.parseInt("7") == 7
    assert java_names(spark) is names
