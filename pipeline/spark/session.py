"""Creates the Spark session, with the settings that logtwin needs and the reasons for them, and warms it up."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.config.jars import FROM_ENVIRONMENT, JarsConfig
from pipeline.spark.jars import java, session_jars, spark_jars
from pipeline.spark.jvm import archive_file, archive_options, compiled_home, started_gateway
from pipeline.spark.master_url import checked_master
from pipeline.system.console import shows_live
from pipeline.system.folders import cache_file, cache_folder, limit_rights, process_folder
from pipeline.system.signals import at_once
from sinks.delta.java_names import java_names
from sinks.delta.spark_jobs import JobFacts, run_tasks
from sinks.storage.check import check_one_place_alone, check_storage, check_writable
from sinks.storage.hadoop import reach
from sinks.storage.place import LOCAL, Place, placed
from sinks.storage.settings import use
from sources.datasource import register
from sources.errors import LogtwinError
from sources.options import MIB

NEEDED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A text with ${env:…} or ${system:…} in it, whoever wrote it, is that text.
    "spark.sql.variable.substitute": "false",
    # Timestamps of a log are instants; results must not depend on where a query runs.
    "spark.sql.session.timeZone": "UTC",
    # A table's state is small and a batch is a handful of tasks: the defaults of 50 and 200 tasks cost seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    # Tasks decode outside of the JVM: the driver's heap holds plans and the transaction log.
    "spark.driver.memory": "1g",
    # A task's arrays are some megabytes each, allocated and freed all the time. Arrow's own pool returns their pages to
    # the system, and pays for the page faults again. The C library keeps them if it is told so: from 32 MiB on, an
    # allocation is mapped by itself, and up to 64 MiB may stay free. Two arenas serve the threads that decode and those
    # that write: with more arenas the free pieces add up.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 * MIB),
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    # Over TCP, Spark's message to a Python worker takes two packets, and the second waits 40 ms for the delayed
    # acknowledgement of the first (Nagle's algorithm), for every task that begins.
    "spark.python.unix.domain.socket.enabled": "true",
    # Executors have this project before they start Python for the first time: installed, or by `_find_submitted_code`.
    "spark.python.daemon.module": "pipeline.spark.python_daemon",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The default renames through Hadoop's FileContext, which on a local disk runs readlink and chmod as processes, tens
    # of them for each batch. It refuses to rename over an existing file; our checkpoints, which only serve one query,
    # do not need that.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The same holds for the versions that Kernel writes, and their checksums: fifteen processes each. On a local disk
    # both stores only check whether a version exists and then rename. Our commits exclude each other anyway
    # (`sinks/delta/version_files.py`).
    "spark.hadoop.io.delta.kernel.logStore.file.impl": "io.delta.storage.LocalLogStore",
    # Typed tables have a pool of their own: a batch of the log, for which producers wait, gets its cores beside them.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    # Spark keeps these for its UI even without one, each query with its plan as text, and a job runs several a second.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.showConsoleProgress": "false",
}

# Rows never pass through the JVM, and a session often lasts only minutes. In that time C2, the optimizing compiler,
# takes a tenth of two cores for code that hardly runs again. Ten times its thresholds (of JDK 17) restrict it to hot
# loops. A JVM that does not know these options starts nevertheless.
COMPILE_LATER = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

# A session for a few queries over little data runs hardly anything often enough for C2. With C1 alone it takes two
# thirds of the time; a large scan would take twice as long.
COMPILE_ONCE = "-XX:TieredStopAtLevel=1"

LOOPBACK = {
    # The driver and the tasks of a local session talk over loopback, whatever the host is called.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
STARTS = "starting Spark …"
log = logging.getLogger(__name__)


def session_for(
    config: Config,
    name: str = "logtwin",
    *,
    writes: bool = False,
    makes_room: bool = False,
    is_brief: bool = False,
    archive_to: Path | None = None,
    before_java: Callable[[], None] | None = None,
) -> SparkSession:
    """The session of a configuration, once its storage has answered, and can be written if the caller `writes` to it.
    The JVM's output goes to `spark_log`. A full disk is no reason against a caller that `makes_room`. What else may
    stand against a start is looked at by `before_java`, which raises it, and tells that Spark starts; without one, only
    who sits before a terminal is told.

    `is_brief`: it is for a few queries over little data (`COMPILE_ONCE`). `archive_to`: its JVM writes an archive of
    its classes there when it ends.

    Raises ConfigurationError if the warehouse cannot be used, StorageUnreachable if that may pass.
    """
    warehouse = _reached(config)
    if writes:
        check_writable(warehouse, makes_room=makes_room)
    with at_once():  # nothing has begun, and Spark's own handler of Ctrl-C goes
        if before_java is not None:
            before_java()
        elif shows_live() and SparkContext._gateway is None:
            log.info(STARTS)
        return build_session(
            config.spark,
            warehouse=warehouse,
            jars=config.jars,
            name=name,
            log_file=None if _is_submitted() else cache_file(spark_log().name),
            is_brief=is_brief,
            archive_to=archive_to,
        )


def without_session(config: Config) -> Config:
    """Prepare to read small tables without starting a JVM: check that the storage answers. Returns the configuration.

    Raises ConfigurationError if the warehouse cannot be reached, StorageUnreachable if that may pass.
    """
    _reached(config)
    check_one_place_alone(config.warehouse, config.spark)
    return config


def _reached(config: Config) -> Place:
    use(config.storage)
    place = placed(config.warehouse)
    limit_rights(place.local)
    check_storage(place)
    return place


def build_session(
    properties: Mapping[str, str],
    *,
    warehouse: Place = LOCAL,
    jars: JarsConfig = FROM_ENVIRONMENT,
    name: str = "logtwin",
    log_file: Path | None = None,
    is_brief: bool = False,
    archive_to: Path | None = None,
) -> SparkSession:
    """The Spark session of this process, created if there is none, with Delta and the data source ``logtwin``.

    `properties` override logtwin's own. Under spark-submit the submitted properties override both, and must include the
    packages of Delta and of the warehouse's file system. The JVM's own output goes to `log_file`, if given, instead of
    standard output and error.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise tasks use any python3 on the PATH
    builder = SparkSession.builder.appName(name)
    submitted = _submitted()
    own = {"spark.python.unix.domain.socket.dir": str(process_folder())}  # Python daemons have folders of their own
    launch = {} if submitted else _launch(properties, warehouse, jars, is_brief, archive_to)
    settings = {**NEEDED, **own, **launch, **properties}
    for key, value in settings.items():
        if key not in submitted:
            builder = builder.config(key, value)
    if not submitted:
        _start_jvm(settings, log_file)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # When the JVM dies, it would print a traceback, behind the line that says so.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    reach(spark, warehouse, str(process_folder()))
    _write_no_checksum_files(spark)
    _find_submitted_code(spark)
    register(spark)
    return spark


def spark_log() -> Path:
    """The file for the JVM's output, which on a terminal would only obscure logtwin's own."""
    return cache_folder() / "spark.log"


def _start_jvm(settings: Mapping[str, str], log_file: Path | None) -> None:
    """Start the JVM unless it runs. Its output goes to `log_file`: readers of ours need not wait for its end."""
    if SparkContext._gateway is not None:
        return
    with ExitStack() as opened:
        file = None
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(_private(log_file))
        if settings["spark.master"].startswith("local"):
            opened.enter_context(compiled_home())
        gateway = started_gateway(settings, file)
    SparkContext._ensure_initialized(gateway=gateway)


def _private(log_file: Path) -> IO[str]:
    """Open for more lines, for its owner alone: it is of all warehouses, and an error may have a value in it."""
    file = os.fdopen(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a")
    if os.fstat(file.fileno()).st_uid == os.getuid():
        os.fchmod(file.fileno(), 0o600)
    return file


def _write_no_checksum_files(spark: SparkSession) -> None:
    """Let Hadoop write local files without a hidden ``.crc`` beside each, from now on, in this JVM.

    Each file and each checksum costs a process, `chmod`: twelve a batch, of four milliseconds each. And after a power
    failure a whole file may have half a checksum, so that nobody can read it. Checksums that others have written are
    still verified, and are removed when their file is overwritten.
    """
    here = java_names(spark).org.apache.hadoop.fs.Path("file:///")
    here.getFileSystem(spark._jsc.hadoopConfiguration()).setWriteChecksum(False)


def _find_submitted_code(spark: SparkSession) -> None:
    """Let every Python process of Spark find the files of ``--py-files`` from now on.

    Spark distributes those files, but its processes import only from .zip and .egg, and the one that plans a stream
    from none. An executor has them in its working folder, the driver in another one.
    """
    context = spark.sparkContext
    given = context.getConf().get("spark.submit.pyFiles", "").split(",")
    names = [Path(one).name for one in given if one]
    places = [place for name in names for place in (name, SparkFiles.get(name))]
    before = context.environment.get("PYTHONPATH")
    if places:
        context.environment["PYTHONPATH"] = os.pathsep.join([*places, before] if before else places)


def _is_submitted() -> bool:
    """By spark-submit, which has started the JVM: on a cluster perhaps where no folder of ours can be written."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> set[str]:
    """The names of the properties given to spark-submit, which a builder's would override; none without it."""
    if not _is_submitted():
        return set()
    SparkContext._ensure_initialized()  # the JVM, which already runs, knows them
    return {name for name, _ in SparkConf().getAll()}


def _launch(
    properties: Mapping[str, str], warehouse: Place, given: JarsConfig, is_brief: bool, archive_to: Path | None
) -> dict[str, str]:
    """The properties that only the process which starts the JVM can set."""
    jars = session_jars(warehouse.scheme, given)
    logging = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    options = f"{COMPILE_LATER} {logging}"
    master = properties.get("spark.master", "local")
    checked_master(master)
    if not master.startswith("local"):
        return {"spark.jars": ",".join(map(str, jars)), "spark.driver.extraJavaOptions": options}
    options += f" {archive_options(archive_file(given, java(), [*jars, *spark_jars()]), archive_to)}"
    if is_brief:
        options += f" {COMPILE_ONCE}"
    return {
        "spark.master": "local[*]",
        # On the class path of the only JVM there is; spark.jars would copy them for every session.
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.driver.extraJavaOptions": options,
        **LOOPBACK,
    }


def warm_up(spark: SparkSession) -> threading.Thread:
    """Start Python workers before they are needed, in a thread that ends by itself. Never fails.

    The first task of a session waits seconds for a process that imports pyarrow and this project. Otherwise that would
    happen when the log has been claimed, and the master and its producers wait. It runs tasks of an RDD, as batches do:
    Spark has one daemon for those, and another for the tasks of queries.
    """
    thread = threading.Thread(target=_start_workers, args=(spark,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _start_workers(spark: SparkSession) -> None:
    facts = JobFacts(
        problem="Python workers cannot be started",
        log="every log",
        hint="The first batch will say what is in its way.",
    )
    try:
        run_tasks(spark, list, range(spark.sparkContext.defaultParallelism), facts)
    except LogtwinError as error:
        log.debug("no warm-up: %s", error)  # the job itself will meet the error, and report it
