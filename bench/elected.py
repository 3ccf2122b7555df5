"""A log over HA from an elected master, against the same log from a plain one: two real 5.5.0 brokers.

The elected one speaks the dialect of controller mode, with longer headers and a handshake; its log has an epoch file.
Both brokers have the log, 1 KB bodies in segment files of 256 MiB, beforehand, and run all the time. logtwin catches up
with each in turn, as `bench/over_ha.py` measures it: bytes/s of the commits after the first.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator

from bench.contest import Figure, Goal, Settings, by_turns
from bench.over_ha import BODY_BYTES, FILE_SIZES, VERSION, await_ready, caught_up
from bench.payloads import rows, write_log
from bench.peers import ON_CORES, plain_session
from sources.epochs import Epoch
from sources.offsets import Offset
from sources.rocketmq.files.segment_files import EPOCH_FILE, encode_epoch_file
from tests.peers.elected import elected_group
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer

MESSAGES = 1_600_000  # 2 GB
GOAL = Goal(least=0.95)


def measure(settings: Settings) -> Iterator[Figure]:
    messages = settings.scaled(MESSAGES, least=20_000)
    home, group_home = settings.folder / "plain", settings.folder / "group"
    store = group_home / "broker-0" / "store"
    end = write_log(store / "commitlog", BODY_BYTES, messages)
    # new controllers count from 1, and a broker drops epochs that are not below the next
    (store / EPOCH_FILE).write_bytes(encode_epoch_file((Epoch(0, Offset(0)),)))
    with NameServer(VERSION, settings.folder / "names") as names:
        plain = Broker(VERSION, home, {**FILE_SIZES, "namesrvAddr": names.address})
        shutil.copytree(store / "commitlog", plain.commitlog)
        records = rows(plain.commitlog, messages)
        with plain, elected_group(group_home, 1, settings=FILE_SIZES) as group:
            (elected,) = group.brokers
            await_ready(plain, names, end)
            await_ready(elected, group.names, end)
            with plain_session(settings.folder, ON_CORES) as spark:
                rounds = by_turns(
                    settings.rounds,
                    lambda number: caught_up(spark, settings, f"elected-{number}", elected, records, end)[0],
                    lambda number: caught_up(spark, settings, f"plain-{number}", plain, records, end)[0],
                )
    for folder in (home, group_home, settings.folder / "names"):
        shutil.rmtree(folder)
    yield Figure(
        work="catch-up over HA from an elected master, 1 KB",
        ours="AutoSwitchHA",
        against="plain HA",
        unit="bytes/s",
        rounds=rounds,
        goal=GOAL,
        details={
            "log_bytes": end,
            "records": records,
            "elected_bytes_per_s": statistics.median(one.ours for one in rounds),
            "plain_bytes_per_s": statistics.median(one.against for one in rounds),
        },
    )
