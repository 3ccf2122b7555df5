"""A path without scheme, where Hadoop's default file system is no local disk: two folders, of which neither is meant.

Hadoop (Spark, Kernel) reads ``/data/lake`` on `fs.defaultFS`, Arrow and Python read it on the local disk of whatever
host they run on. Nobody can say which the operator had in mind, so it has to be written.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sinks.java_names import java_names
from sinks.place import placed
from sources.errors import ConfigurationError


def check_one_place(spark: SparkSession, given: str) -> None:
    """Make sure that `given`, of tables or checkpoints, is one folder in this session. Raises ConfigurationError."""
    place = placed(given)
    if place.scheme is not None:
        return
    default = java_names(spark).org.apache.hadoop.fs.FileSystem.getDefaultUri(spark._jsc.hadoopConfiguration())
    if default.getScheme() == "file":
        return
    on_default = f"{str(default.toString()).rstrip('/')}{place.path}"
    raise ConfigurationError(
        f"{given} is two places: Hadoop's default file system (fs.defaultFS) is not a local disk",
        expected=f"a URI: {on_default} or file:{place.path}",
        found=given,
        hint="Write the one that is meant; file: is the disk of each host, so only of use where all of them share it.",
    )
