"""Eight logs on YARN, which restarts the driver and outlives a node: nothing is lost or doubled.

The driver runs in the cluster, too, and all Python is of an archive (`tests.pipeline.yarn`).
"""

from pathlib import Path

import pytest

from tests.pipeline.standalone import see_them_end
from tests.pipeline.test_cluster import assert_all_whole, at_work, job_file, positions, running_masters, see_committed
from tests.pipeline.yarn import packed_environment, submitted, yarn

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]


def test_a_driver_and_then_a_node_die(tmp_path: Path, wheel: Path) -> None:
    packed_environment(tmp_path, wheel)
    with running_masters(tmp_path, 24_000_000) as masters, yarn(tmp_path / "cluster") as cluster:
        whole = sum(master.end for master in masters)
        job_file(tmp_path, masters)
        with submitted(cluster, tmp_path) as job:
            see_committed(tmp_path, job, 1)
            see_them_end(cluster.kill_driver())
            see_committed(tmp_path, job, sum(positions(tmp_path)) + 1)
            drivers = cluster.driver_node()
            node = next(one for one in cluster.nodes if one is not drivers)
            with at_work(tmp_path, job, node, masters, round(0.1 * whole)):
                tasks = node.kill()
            see_them_end(tasks)
            assert sum(positions(tmp_path)) < whole
            assert job.ended() == 0, job.errors.read_text()[-5000:] + cluster.said("stderr")[-5000:]
        assert len(list(cluster.folder.glob("node-*/log/*/container_*_000001"))) == 2  # the containers of drivers
        assert_all_whole(tmp_path, masters, cluster.said("stdout"))
