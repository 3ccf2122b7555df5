"""What the DAGs submit, and what they make of how it ends: a real scheduler, with a stand-in for spark-submit."""

import pytest

from sources.errors import Divergent, MasterUnreachable, StorageUnreachable
from tests.airflow.conftest import StandIn
from tests.airflow.installation import Api
from tests.patience import wait_until

pytestmark = pytest.mark.airflow

WHERE = {"config": "/etc/job.toml", "connection": "stand_in"}
COVERAGE = {"logs": [{"log": "rocketmq/test", "holes": []}]}


def test_each_hole_is_filled_by_a_submission_of_its_own_then_the_coverage_is_told(api: Api, stand_in: StandIn) -> None:
    stand_in.answers("backfill", {"holes": [{"start": 0, "end": 100}, {"start": 250, "end": 300}]})
    stand_in.answers("coverage", COVERAGE)
    run = api.trigger("logtwin_backfill", log="rocketmq/test", to="2026-01-31T12:00:00Z", path="/archive", **WHERE)
    assert run.ended() == "success"
    listing, *fills, coverage = stand_in.verbs
    common = "--config /etc/job.toml --log rocketmq/test"
    assert listing == f"backfill {common} --to 2026-01-31T12:00:00Z --path /archive --dry-run --json"
    assert sorted(fills) == [
        f"backfill {common} --path /archive --from 0 --to 100",
        f"backfill {common} --path /archive --from 250 --to 300",
    ]
    assert coverage == f"coverage {common} --json"
    assert run.result("coverage") == COVERAGE
    assert {one["rendered_map_index"] for one in run.tasks()["fill"]} == {"0 – 100", "250 – 300"}


def test_where_nothing_is_missing_nothing_is_filled(api: Api, stand_in: StandIn) -> None:
    stand_in.answers("backfill", {"holes": []})
    stand_in.answers("coverage", COVERAGE)
    run = api.trigger("logtwin_backfill", log="rocketmq/test", **WHERE)
    assert run.ended() == "success"
    assert run.states() == {"holes": ["success"], "fill": ["skipped"], "coverage": ["success"]}
    assert len(stand_in.calls) == 2


def test_the_defaults_of_a_nightly_run(api: Api, stand_in: StandIn) -> None:
    dags = ("logtwin_verify", "logtwin_verify_whole", "logtwin_maintain", "logtwin_replicate")
    runs = [api.trigger(dag_id, connection="stand_in") for dag_id in dags]
    assert [run.ended() for run in runs] == ["success"] * 4
    assert sorted(stand_in.verbs) == [
        "maintain --config /etc/logtwin/logtwin.toml",
        "replicate --config /etc/logtwin/logtwin.toml --available-now",
        "verify --config /etc/logtwin/logtwin.toml",
        "verify --config /etc/logtwin/logtwin.toml --sample 0.1",
    ]
    for call in stand_in.calls:
        spark = " ".join(call["spark"])
        assert spark.startswith("--master local[1] --packages io.delta:delta-spark_4.2_2.13:4.4.0 ")
        assert spark.endswith(" /opt/logtwin/submit.py")


def test_every_field_becomes_an_option(api: Api, stand_in: StandIn) -> None:
    limits = {"keep_days": 7, "keep_gb": 0.5, "vacuum_hours": 168, "dry_run": True}
    runs = [api.trigger("logtwin_maintain", log="rocketmq/test", **limits, **WHERE)]
    runs += [api.trigger("logtwin_replicate", take_over=True, **WHERE)]
    assert [run.ended() for run in runs] == ["success"] * 2
    assert sorted(stand_in.verbs) == [
        "maintain --config /etc/job.toml --log rocketmq/test --keep-days 7 --keep-gb 0.5 --vacuum-hours 168 --dry-run",
        "replicate --config /etc/job.toml --take-over --available-now",
    ]


def test_a_difference_fails_the_run_without_another_try(api: Api, stand_in: StandIn) -> None:
    stand_in.exits("verify", Divergent.exit_code)
    run = api.trigger("logtwin_verify", **WHERE)
    assert run.ended() == "failed"
    assert run.tasks()["verify"][0]["try_number"] == len(stand_in.calls) == 1


def test_a_master_or_a_storage_that_is_away_is_asked_again(api: Api, stand_in: StandIn) -> None:
    away = {"verify": MasterUnreachable, "maintain": StorageUnreachable}
    for verb, error in away.items():
        stand_in.exits(verb, error.exit_code)
    runs = {
        "verify": api.trigger("logtwin_verify_whole", **WHERE),
        "maintain": api.trigger("logtwin_maintain", **WHERE),
    }
    wait_until(
        lambda: all(run.states() == {task: ["up_for_retry"]} for task, run in runs.items()),
        lambda: str({task: run.tasks() for task, run in runs.items()}),
    )
    for run in runs.values():
        run.give_up()


@pytest.mark.parametrize(
    ("dag_id", "task", "given", "variable", "said"),
    [
        ("logtwin_maintain", "maintain", {"connection": "nowhere"}, {}, "there is no connection 'nowhere'"),
        (
            "logtwin_backfill",
            "holes",
            {"log": "rocketmq/test", "form": "100", **WHERE},
            {},
            "unknown parameters of the run: form",
        ),
        ("logtwin_maintain", "maintain", {}, {"pyfiles": "/a.whl"}, "unknown keys of the Variable logtwin: pyfiles"),
    ],
)
def test_what_is_not_there_fails_the_run(
    api: Api, stand_in: StandIn, dag_id: str, task: str, given: dict[str, str], variable: dict[str, str], said: str
) -> None:
    with api.variable("logtwin", variable):
        run = api.trigger(dag_id, **given)
        assert run.ended() == "failed"
    assert said in run.log(task)
    assert stand_in.calls == []


def test_the_variable_says_where_things_are_and_how_spark_runs(api: Api, stand_in: StandIn) -> None:
    variable = {
        "config": "/srv/twin.toml", "connection": "stand_in", "application": "/srv/submit.py", "packages": None,
        "jars": "/srv/delta.jar", "py_files": "/srv/logtwin.whl", "conf": {"spark.executor.memory": "2g"},
    }  # fmt: skip
    with api.variable("logtwin", variable):
        assert api.trigger("logtwin_maintain").ended() == "success"
    [call] = stand_in.calls
    assert " ".join(call["spark"]) == (
        "--master local[1] --conf spark.executor.memory=2g --py-files /srv/logtwin.whl --jars /srv/delta.jar "
        "--name logtwin maintain /srv/submit.py"
    )
    assert " ".join(call["verb"]) == "maintain --config /srv/twin.toml"
