"""The dashboard and the alert rules ask only for what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import blocks
from tests.pipeline.scraping import KNOWN, Endpoint

CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """Every series that an endpoint has -> its labels, with those that Prometheus adds."""
    endpoint = Endpoint()
    families = endpoint.families(KNOWN)
    endpoint.metrics.stop()
    return {sample.name: {*sample.labels, "instance", "job"} for family in families for sample in family.samples}


def names_in(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\boffset \w+", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    words = re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", bare)
    return set(words) - {"and", "or", "unless", "bool"}


def selected_labels(expression: str) -> set[tuple[str, str]]:
    return {
        (name, label)
        for name, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", expression)
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', "", matchers))
    }


def check_expression(expression: str, labels: dict[str, set[str]]) -> None:
    assert names_in(expression)
    assert names_in(expression) <= labels.keys(), expression
    for name, label in selected_labels(expression):
        assert label in labels[name], expression


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONF / "grafana" / "logtwin.json").read_text())
    return found


def test_the_dashboard_asks_only_for_what_there_is(labels: dict[str, set[str]]) -> None:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            check_expression(target["expr"], labels)
            common = set.intersection(*(labels[name] for name in names_in(target["expr"])))
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown - {"stage"} <= common, panel["title"]


def test_the_dashboard_shows_every_metric_of_a_log(labels: dict[str, set[str]]) -> None:
    shown = set().union(*(names_in(target["expr"]) for panel in dashboard()["panels"] for target in panel["targets"]))
    assert shown == labels.keys() - {"logtwin_build_info"}


def test_the_dashboard_can_be_imported_anywhere(labels: dict[str, set[str]]) -> None:
    """The classic model: a data source chosen at import, panels with ids of their own in a grid of 24 columns."""
    board = dashboard()
    assert board["schemaVersion"] >= 39
    assert "id" not in board
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    series, label = re.findall(r"\w+", variables["log"]["definition"].removeprefix("label_values"))
    assert label in labels[series]
    for panel in board["panels"]:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for asking in (panel, *panel["targets"]):
            assert asking["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def alerts() -> list[dict[str, Any]]:
    return [
        rule
        for group in yaml.safe_load((CONF / "prometheus" / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    ]


def test_every_alert_asks_only_for_what_there_is_and_says_what_to_do(labels: dict[str, set[str]]) -> None:
    for rule in alerts():
        check_expression(rule["expr"], labels)
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        common = set.intersection(*(labels[name] for name in names_in(rule["expr"])))
        words = [rule["annotations"]["summary"], rule["annotations"]["description"]]
        assert set(re.findall(r"\$labels\.(\w+)", " ".join(words))) <= common, rule["alert"]
        assert all(words)


def test_a_loss_is_announced_six_hours_ahead() -> None:
    [rule] = [rule for rule in alerts() if "logtwin_until_loss_seconds" in names_in(rule["expr"])]
    assert rule["expr"] == "logtwin_until_loss_seconds < 6 * 3600"
    assert rule["labels"]["severity"] == "critical"


def test_the_example_of_routes_sends_each_alert_to_a_chat_and_the_critical_ones_by_mail() -> None:
    (block,) = (one for one in blocks("docs/metrics.md") if one.text.startswith("route:"))
    shown = yaml.safe_load(block.text)
    mailed, rest = shown["route"]["routes"]
    assert {one["name"] for one in shown["receivers"]} == {mailed["receiver"], rest["receiver"]}
    assert mailed["continue"]  # to the chat as well
    assert "matchers" not in rest
    assert set(mailed["matchers"]) < {f'severity="{rule["labels"]["severity"]}"' for rule in alerts()}
