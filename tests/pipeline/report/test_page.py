"""The page: it stands alone, says what it is of, and nothing that comes from data is ever more than text."""

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest

from pipeline.report.facts import Flaw, ReportedIncidents, SlowestGroups, TopicFacts, TopTopics
from pipeline.report.page import page
from tests.pipeline.report.samples import INJECTED, bare, flawed, group, incident, log, whole


class Read(HTMLParser):
    """What a browser makes of a page: its elements, the text of some, and the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self._open[-1:] != ["style"]:
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    @property
    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[1])
        return found


@pytest.fixture(scope="module")
def read() -> Read:
    return Read(page(whole()))


def test_it_says_of_which_replica_made_when_and_of_which_version(read: Read) -> None:
    assert "Replica /data/lake, 2026-11-22 12:00:00 UTC, version 42" in read.words
    assert "Made 2026-11-22 12:00:00 UTC from version 42 of the table log" in read.words
    assert read.words.index("1 of 2 logs needs attention.") < read.words.index("1 gap, 2.5 kB missing.")
    coverage_at = read.words.index("What is there of each log, by offset")
    assert read.words.index("Nothing of it is replicated yet.") < coverage_at


def test_it_loads_nothing_and_only_its_own_two_scripts_may_run(read: Read) -> None:
    for tag, attributes in read.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    (policy,) = (one["content"] or "" for one in read.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    code = read.scripts[2:]
    assert [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in code] == allowed
    assert [one.get("type") for one in read.of("script")] == ["application/json", "application/json", None, None]


@pytest.mark.parametrize("injected", [INJECTED, "</script><script>window.injected = true</script>", "<!--<script>"])
def test_what_comes_from_data_is_only_text(injected: str) -> None:
    topic = TopicFacts(topic=injected, messages=1, bytes=1)
    facts = bare(
        log(),
        topics=TopTopics((topic,), of=1, messages=1, bytes=1),
        groups=SlowestGroups((group(injected, 1, 1.0),), of=1, behind=1),
        incidents=ReportedIncidents((incident(cause=injected),), of=1, open=1),
        flaws=(flawed(Flaw.MISSING, 1, 2, why=injected),),
    )
    found = Read(page(facts))
    assert len(found.of("script")) == 4
    assert found.words.count(injected) == 4  # in four tables, in full
    assert len(found.figures) == 5


def test_every_plot_has_its_place_a_name_and_a_table_after_it(read: Read) -> None:
    places = {one["id"]: one for one in read.of("div") if one.get("role") == "img"}
    assert set(places) == set(read.figures)
    assert set(places) == {
        "coverage-0", "coverage-1", "throughput-0", "lag-0", "topics-0", "consumers-0", "transactions-0", "delays-0",
    }  # fmt: skip
    assert all(one["aria-label"] for one in places.values())
    tags = [tag for tag, _ in read.elements if tag in {"section", "figure", "table"}]
    tables = "".join({"section": " ", "figure": "f", "table": "t"}[tag] for tag in tags).split()
    assert tables == ["fftt", "ft", "ft", "ft", "ft", "ft", "ft", "t"]


def test_tables_are_tables_for_screen_readers_also_as_blocks(read: Read) -> None:
    elements, names = "table thead tbody tr th td", "table rowgroup rowgroup row columnheader cell"
    roles = dict(zip(elements.split(), names.split(), strict=True))
    for tag, attributes in read.elements:
        assert attributes.get("role") == roles.get(tag, attributes.get("role"))
    counted = Counter(tag for tag, _ in read.elements)
    assert counted["td"] > counted["th"] > 0


def test_what_a_replica_has_nothing_of_is_said_in_words() -> None:
    found = Read(page(bare(log())))
    for words in (
        "No commit of a live job",
        "No messages of business topics.",
        "No consumer group is known: the broker's metadata is not in this replica",
        "No transactions.",
        "No delayed messages.",
        "None so far.",
    ):
        assert words in found.words
    assert "No consumer group has committed an offset." in Read(page(bare(log(), has_metadata=True))).words


def test_of_many_logs_those_that_are_well_are_folded_up() -> None:
    logs = [log(f"rocketmq/b{number}") for number in range(40)]
    found = Read(page(bare(log("rocketmq/bad", open_incidents=1), *logs)))
    assert "40 logs are complete" in found.words
    assert found.words.index("rocketmq/bad") < found.words.index("40 logs are complete")
    assert found.words.count("Complete through offset 10,000") == 41
    assert "are complete" not in Read(page(bare(*logs[:3]))).words.replace("All 3 logs are complete.", "")


def test_a_topic_is_one_line_that_unfolds() -> None:
    """A hundred partitions take no more room than one log, until somebody wants them."""
    found = Read(page(bare(*(log(f"kafka/prod/orders/{number}") for number in range(100)), log())))
    assert found.words.count("100 partitions are complete") == 1
    lines = found.of("li")
    assert len([one for one in lines if (one.get("class") or "").startswith("log ")]) == 102
    text = page(bare(*(log(f"kafka/prod/orders/{number}") for number in range(100))))
    shown = text[text.index('<ul class="logs">') :]
    assert shown.index("<details>") < shown.index("kafka/prod/orders/0<")
    assert re.search(r"<details><summary>100 partitions</summary>", text)
