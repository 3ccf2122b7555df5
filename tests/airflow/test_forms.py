"""What a form does not take: the run is refused when it is asked for, not when it is under way."""

import pytest

from tests.airflow.installation import Api, ApiError

pytestmark = pytest.mark.airflow

MISSING = object()


@pytest.mark.parametrize(
    ("dag_id", "field", "value"),
    [
        ("logtwin_backfill", "log", MISSING),
        ("logtwin_backfill", "log", None),
        ("logtwin_backfill", "log", "broker-a"),
        ("logtwin_backfill", "from", "yesterday"),
        ("logtwin_backfill", "from", "-1"),
        ("logtwin_backfill", "to", "2026-13"),
        ("logtwin_backfill", "to", "12; rm -rf /"),
        ("logtwin_backfill", "path", ""),
        ("logtwin_backfill", "config", "logtwin.yaml"),
        ("logtwin_verify", "sample", 0),
        ("logtwin_verify", "sample", 1.5),
        ("logtwin_verify", "max_mb_per_s", 0),
        ("logtwin_verify_whole", "connection", "spark default"),
        ("logtwin_maintain", "keep_days", -1),
        ("logtwin_maintain", "keep_gb", "many"),
        ("logtwin_maintain", "vacuum_hours", 0.5),
        ("logtwin_maintain", "dry_run", "perhaps"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(api: Api, dag_id: str, field: str, value: object) -> None:
    given = {"log": "rocketmq/test", field: value}
    if value is MISSING:
        del given[field]
    with pytest.raises(ApiError, match=rf"^400: .*Invalid input for param {field}:"):
        api.trigger(dag_id, **given)
