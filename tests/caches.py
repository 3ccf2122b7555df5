"""What the first run of the tests makes for all later ones: ``python -m tests.caches``, beside `make lint`.

Jars (Ivy mostly waits for the network), archives of classes, compiled loops. In the tests one process would make each
of them, while the others wait for it. Where all is there it takes a few seconds.
"""

import importlib
import tempfile
from pathlib import Path

import tests.conftest  # noqa: F401  # it sets the options of all JVMs
from pipeline.spark.jars import session_jars
from tests.class_archives import spark_options
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer

LOOPS = ("sources.rocketmq.columns.body_crcs", "sources.rocketmq.columns.loops")


def main() -> None:
    """Make what is missing. Raises ConfigurationError if a jar cannot be had."""
    for loops in LOOPS:
        importlib.import_module(loops)  # compiles them
    for scheme in ("s3a", "abfs"):
        session_jars(scheme)
    spark_options(session_jars())
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        for peer in (
            KafkaBroker(VERSIONS[-1], home),
            Broker("5.5.0", home),
            NameServer("5.5.0", home),
            Broker("4.9.7", home),
        ):
            peer.make_archive()


if __name__ == "__main__":
    main()
