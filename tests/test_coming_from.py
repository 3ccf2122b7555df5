"""docs/coming-from.md: whatever it calls ours is there, a key, a verb, a table, a view, a metric."""

import re
from collections.abc import Iterator
from functools import cache

import pytest
from pydantic import BaseModel
from typer.main import get_command

from pipeline.cli.app import app
from pipeline.config.configuration import Config, MaintainConfig
from pipeline.config.patterns import CLUSTER_KEYS
from pipeline.config.typed_tables import TypedTableConfig
from sinks.tables import TABLES
from sinks.views.definition import VIEWS
from sources.kafka.options import ReplicatedTopicOptions
from sources.options import ReadOptions
from tests.documents import PROJECT

DOCUMENT = PROJECT / "docs" / "coming-from.md"
SYSTEMS = (
    "Spark's Kafka source", "kafka-delta-ingest", "Debezium", "Flink CDC", "Kafka Connect", "Redpanda", "MirrorMaker 2",
    "A RocketMQ slave", "mqadmin",
)  # fmt: skip
NOTHING = "–"
VERBS = getattr(get_command(app), "commands", {})
_WORDS_BESIDE = {"id", "topics", "pattern", "cluster"}  # of [[topics]], which say which
_PATHS = {"/health", "/ready", "offset"}


def rows() -> Iterator[tuple[str, str, str]]:
    """Theirs, ours, and what is said besides."""
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[0] not in ("theirs", "---"):
            yield cells[0], cells[1], cells[2]


@cache
def known() -> set[str]:
    models: list[type[BaseModel]] = [ReadOptions, ReplicatedTopicOptions, TypedTableConfig, MaintainConfig, Config]
    keys = {name.rstrip("_") for model in models for name in model.model_fields}
    metrics = set(re.findall(r"^\| `(\w+)` \| (?:gauge|counter)", (PROJECT / "docs" / "metrics.md").read_text(), re.M))
    return {*keys, *CLUSTER_KEYS, *VIEWS, *(one.name for one in TABLES), *metrics, *_WORDS_BESIDE, *_PATHS}


def test_each_system_has_a_table() -> None:
    assert tuple(re.findall(r"^## (.+)$", DOCUMENT.read_text(), re.M)) == SYSTEMS
    assert len(list(rows())) > 50


@pytest.mark.parametrize(("theirs", "ours", "besides"), list(rows()))
def test_what_is_called_ours_is_there(theirs: str, ours: str, besides: str) -> None:
    """A verb with its options, a table of the configuration, or a word that is known."""
    if ours == NOTHING:
        assert besides, f"{theirs}: why is there nothing?"
        return
    words = re.findall(r"`([^`]+)`", ours)
    assert words or ours.startswith("job"), theirs
    for word in words:
        name, *options = word.split()
        if section := re.fullmatch(r"\[\[(\w+)\]\]", word):
            assert section[1] in Config.model_fields
        elif name in VERBS:
            taken = {text for parameter in VERBS[name].params for text in parameter.opts}
            assert set(options) <= taken, word
        else:
            assert re.split(r"\s*=", word)[0] in known(), word
