"""What the other modules show without Spark, once with it: batches, a kill, and a leader that overrules."""

import pytest

from sinks.batch.proof import BatchStep
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import dirty, leader, write_log

pytestmark = pytest.mark.spark


def test_a_killed_job_goes_on_and_follows_a_leader_that_overrules(spark_twin: Twin) -> None:
    write_log(spark_twin.folder, leader(30) + dirty(31, 5, 20))
    with pytest.raises(Killed):
        spark_twin.replicate(dying_after(2, BatchStep.COMMIT), max_entries_per_trigger=20)
    assert spark_twin.position == dirty(40, 5)[-1] + 1
    write_log(spark_twin.folder, leader(60))
    spark_twin.replicate()
    spark_twin.assert_equal()
    assert (spark_twin.went_back_to, spark_twin.epoch) == (leader(30)[-1], 1)
