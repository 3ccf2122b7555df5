"""Automatic repair: what a job does if its master overrules the replica (`Traits.overrules`, or a fail-over).

It runs the same repair as ``logtwin repair``, but as the job's own writer, so that the job keeps the log. It uses the
same marks and steps, so that after a kill any of the two can finish it.
"""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from sinks.healing.repair import Repair, Repaired
from sinks.state.log_state import Writer
from sources.errors import MasterSilent
from sources.master import MasterLog

log = logging.getLogger(__name__)


def mend(spark: SparkSession, warehouse: str, master: MasterLog, writer: Writer, *, is_owner: bool) -> None:
    """Take the replica back to the last point that it shares with `master`, or a pending repair to its end.

    `is_owner`: the log belongs to `writer`, and must still do so. Logs what was done. Raises what `Repair.run` raises,
    and MasterSilent if nothing differs any more, though something did a moment ago: the next try may differ again.
    """
    done = Repair(spark, warehouse, master, writer).run(is_owner=is_owner)
    if done.back is not None:
        back = done.back
        log.warning(
            "%s: %s; the master overrules: went back from %d to %d, %d records went to the table removed",
            master.log_id, back.found.cause, back.since, back.found.common, back.records,
        )  # fmt: skip
    elif done.resumed is not None:
        log.warning("%s: an unfinished repair was finished, at %s", master.log_id, done.position)
    elif not (done.taken_out or done.others):
        raise _unstable(master, done)
    for one in done.others:
        log.warning(
            "%s: rows of %s in %s were in the same damaged file, and taken out: logtwin repair --log %s",
            master.log_id, one.log_id, ", ".join(map(str, one.ranges)), one.log_id,
        )  # fmt: skip
    for hole in done.missing:
        log.warning("%s: %s was damaged in the replica itself: logtwin repair reads it again", master.log_id, hole)


def _unstable(master: MasterLog, done: Repaired) -> MasterSilent:
    return MasterSilent(
        "the master differed from the replica a moment ago, and does not any more",
        log=master.log_id,
        offset=done.position,
        expected="a log that only grows",
        found="the same records as in the replica",
        hint="The master may be rewriting its log: it is asked again. If this goes on, run logtwin verify.",
    )
