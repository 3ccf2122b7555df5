"""Names of the JVM are asked for once, whoever asks."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sinks.delta.java_names import java_names


@pytest.mark.spark
def test_packages_and_classes_are_what_py4j_has(spark: SparkSession) -> None:
    names = java_names(spark)
    assert names.java.util is names.java.util
    assert names.java.util.ArrayList is names.java.util.ArrayList
    assert names.java.lang.Integer.parseInt("7") == 7
    assert java_names(spark) is names
