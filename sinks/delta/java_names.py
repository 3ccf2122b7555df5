"""Packages and classes of the JVM, each looked up once: a lookup asks the JVM, which may search all its jars."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession


class JavaNames:
    """A Java package, or the root of all. Its attributes are packages, as JavaNames, and classes, as py4j has them."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java, name)
        known = JavaNames(found) if isinstance(found, JavaPackage) else found
        setattr(self, name, known)
        return known


def is_not_found(error: Py4JJavaError, spark: SparkSession | SparkContext) -> bool:
    """Whether Java says that there is no such file or folder."""
    not_found = java_names(spark).java.lang.Class.forName("java.io.FileNotFoundException")
    return bool(not_found.isInstance(error.java_exception))


def java_names(spark: SparkSession | SparkContext) -> Any:
    """The root of all packages in the JVM of `spark`, the same object for every caller."""
    return _names(cast(Any, spark._jvm))


@lru_cache(maxsize=1)  # a process has one JVM at a time
def _names(jvm: Any) -> JavaNames:
    return JavaNames(jvm)


def each(iterator: Any) -> Iterator[Any]:
    """Iterate over a Java iterator. Python's own way ends in an exception of the JVM, which costs 10 ms."""
    while iterator.hasNext():
        yield iterator.next()
