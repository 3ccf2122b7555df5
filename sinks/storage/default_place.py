"""Refuse a path without a scheme if Hadoop's default file system is not a local disk, because it is ambiguous.

Hadoop (Spark, Kernel) reads ``/data/lake`` on `fs.defaultFS`, Arrow and Python read it on the local disk of the host
that they run on. It is not known which one the operator meant, so the scheme has to be written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from pyspark.sql import SparkSession

from sinks.delta.java_names import java_names
from sinks.storage.place import Place, placed
from sources.errors import ConfigurationError

_KEY: Final = "fs.defaultFS"


def check_one_place(spark: SparkSession, given: str) -> None:
    """Raises ConfigurationError unless `given`, a folder of tables or checkpoints, is one folder in this session."""
    place = placed(given)
    if place.scheme is not None:
        return
    default = java_names(spark).org.apache.hadoop.fs.FileSystem.getDefaultUri(spark._jsc.hadoopConfiguration())
    _check(given, place, str(default.toString()))


def check_one_place_alone(given: str, properties: Mapping[str, str]) -> None:
    """Like `check_one_place`, without a JVM: by Spark's `properties`, or ``core-site.xml`` in ``HADOOP_CONF_DIR``."""
    place = placed(given)
    if place.scheme is None:
        _check(given, place, properties.get(f"spark.hadoop.{_KEY}") or _in_core_site() or "file:///")


def _in_core_site() -> str | None:
    """The default file system in Hadoop's configuration files; None if they do not say."""
    file = Path(os.environ.get("HADOOP_CONF_DIR", "/nowhere"), "core-site.xml")
    try:
        said = ElementTree.parse(file).getroot()  # noqa: S314 - the operator's own
    except (OSError, ElementTree.ParseError):
        return None
    return next((one.findtext("value") for one in said.iter("property") if one.findtext("name") == _KEY), None)


def _check(given: str, place: Place, default: str) -> None:
    if urlsplit(default).scheme == "file":
        return
    on_default = f"{default.rstrip('/')}{place.path}"
    raise ConfigurationError(
        f"{given} is ambiguous: Hadoop's default file system (fs.defaultFS) is not a local disk",
        expected=f"a URI: {on_default} or file:{place.path}",
        found=given,
        hint="Write the one that is meant; file: is the disk of each host, so only of use where all of them share it.",
    )
