"""Starts Spark's JVM so that it never outlives this process, and no signal reaches it that is not meant for it.

PySpark starts it in our own process group: a signal to a terminal or a group ends it before us, in the middle of a
batch. And if we end before the two have met, it stays for ever: it cannot write the file by which they meet, because
PySpark removes its folder, and then does not notice that its input has ended. So we start it (`kept_process`), and
PySpark meets it as it meets that of spark-submit.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from pipeline.system.console import spark_ended
from pipeline.system.folders import process_folder
from pipeline.system.processes import kept_process

_LOOK_EVERY_S: Final = 0.05
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def started_gateway(settings: Mapping[str, str], output: IO[str] | None) -> Any:
    """The gateway to a new JVM with these properties, which writes to `output`, or where we do.

    Raises ReplicaError if it ends instead.
    """
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    rest = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *given, *rest]
    with TemporaryDirectory(dir=process_folder()) as folder:
        file = Path(folder) / "gateway"
        environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(file)}
        java = kept_process(command, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output)
        while not file.exists():
            with suppress(subprocess.TimeoutExpired):
                raise spark_ended(java.wait(_LOOK_EVERY_S))
        with file.open("rb") as said:
            port, secret = read_int(said), UTF8Deserializer().loads(said)  # type: ignore[no-untyped-call]
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = java
    return gateway
