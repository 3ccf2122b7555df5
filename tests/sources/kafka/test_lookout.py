"""What the planner of a group learns of a topic: all partitions that it asks about by one look."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from sources.access.secrets import Secret
from sources.errors import Recreated
from sources.group import masters, standing
from sources.group.lookout import Lookout, LookRequest, LookResult
from sources.group.masters import MastersFile
from sources.group.offsets import GroupOffset
from sources.group.standing import ReadingPlace, Standing
from sources.kafka.log import KafkaLog
from sources.kafka.options import ReplicatedTopicOptions
from sources.kafka.topic import open_topic
from sources.offsets import Offset
from sources.options import EARLIEST, ReadOptions, parse_options
from tests.patience import PATIENCE_S
from tests.sources.kafka.scripted_cluster import OTHER_ID, TOPIC_ID, Play, metadata, offsets, topic
from tests.sources.scripted_log import planning
from tests.spans import span

OPTIONS = {"id": "kafka/c/t", "servers": "h:1"}
THREE = metadata(topic(leaders=[(1, 0)] * 3))
HELD = (THREE, offsets(0, 3, 5), offsets(10, 13, 15))


def a_lookout() -> Lookout:
    of_topic = open_topic(parse_options(ReplicatedTopicOptions, OPTIONS, where="test"))
    return Lookout(replace(of_topic, patience_ms=0), EARLIEST)


def asked(positions: Mapping[int, int | None], identity: object = TOPIC_ID) -> dict[str, LookRequest]:
    return {
        f"kafka/c/t/{number}": LookRequest(ReadingPlace(None if at is None else Offset(at), 0, str(identity)), None)
        for number, at in positions.items()
    }


def test_its_logs_are_the_partitions_of_its_topic() -> None:
    lookout = a_lookout()
    log = lookout.log("kafka/c/t/2")
    assert isinstance(log, KafkaLog)
    assert (str(log.log_id), log.number) == ("kafka/c/t/2", 2)
    for other in ("kafka/c/u/2", "kafka/d/t/2", "kafka/c/tt/0"):
        assert lookout.log(other) is None
    assert (lookout.is_waited_for(), lookout.may_begin_later) == (False, True)


def test_all_partitions_are_seen_by_one_connection(play: Play) -> None:
    """Also those that nobody asks about: they may be new."""
    cluster = play(*HELD)
    found = a_lookout().look(asked({0: 4, 2: 15}))
    assert found == {
        "kafka/c/t/0": LookResult(span(0, 10), Offset(4)),
        "kafka/c/t/1": LookResult(span(3, 13), Offset(3)),
        "kafka/c/t/2": LookResult(span(5, 15), Offset(15)),
    }
    assert (cluster.connections, cluster.is_done) == (1, True)


# --- topics among what a group reads


def test_the_job_s_options_arrive_and_secrets_by_their_place(tmp_path: Path) -> None:
    given = {
        **OPTIONS, "group": "", "max_offsets_per_trigger": 5, "isolation": "read_uncommitted",
        "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "env:USER_NAME",
        "sasl_password": "file:/password", "ssl_check_hostname": False,
    }  # fmt: skip
    of_topic = parse_options(ReplicatedTopicOptions, given, where="test")
    by_network = {"master": "h:1", "remoting": "h:2", "access_key": "env:ONE", "secret_key": "file:/two"}
    others = {"starting_offset": 7, "split_bytes": 5, "parallel_reads": True, "on_loss": "record"}
    of_log = parse_options(ReadOptions, {"id": "rocketmq/a", **by_network, **others}, where="test")
    masters.write(tmp_path / "masters", [of_topic, of_log])
    assert "file:/password" in (tmp_path / "masters").read_text()
    again, other = MastersFile(tmp_path / "masters").added()
    assert again == of_topic
    assert other == of_log
    assert isinstance(again, ReplicatedTopicOptions)
    assert again.sasl_password == Secret("file:/password")


def options_of(folder: Path) -> dict[str, str]:
    options = parse_options(ReplicatedTopicOptions, {**OPTIONS, "split_offsets": 4}, where="test")
    masters.write(folder / "masters", [options])
    given = {name: str(folder / name) for name in ("masters", "standing")}
    times = dict.fromkeys(("triggerIntervalS", "lookDeadlineS"), str(PATIENCE_S))  # a machine may be busy
    return {**given, **times}


def test_a_topics_error_is_that_of_each_listed_partition(play: Play, tmp_path: Path) -> None:
    play(*HELD)
    places = {f"kafka/c/t/{number}": ReadingPlace(Offset(5), 1, str(OTHER_ID)) for number in (0, 2)}
    standing.write(tmp_path / "standing", Standing(places, 10**9))
    with planning(options_of(tmp_path)) as planner:
        end = GroupOffset.from_json(planner.latestOffset(planner.initialOffset(), ReadAllAvailable()))
    assert {log_id: type(error) for log_id, error in end.errors.items()} == {
        "kafka/c/t/0": Recreated,
        "kafka/c/t/2": Recreated,
    }
    assert not end.batches
