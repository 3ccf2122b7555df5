"""Every view's file is what `definition` says, and reads nothing that is not there before it."""

import re
from importlib import resources
from pathlib import Path

import pytest

from sinks import views
from sinks.views.definition import VIEWS, named_in, view, words_in

FOLDER = Path(views.__file__).parent
GOOD = "CREATE VIEW one (\n  a COMMENT 'first'\n)\nCOMMENT 'says one'\nAS\nSELECT 1\n"


def test_each_file_is_a_view_and_each_view_a_file() -> None:
    assert sorted(VIEWS) == sorted(path.stem for path in FOLDER.glob("*.sql"))
    assert len(set(VIEWS)) == len(VIEWS)


def test_the_views_that_a_statement_names_are_found_with_those_they_read() -> None:
    assert named_in("SELECT * FROM log") == ()
    assert named_in("select * from Messages") == named_in("SELECT * FROM messages")
    assert words_in("FROM Topic_Stats") >= {"from", "topic_stats", "messages", "records", "log"}
    assert named_in("SELECT count(*) FROM messages") == ("records", "messages")
    assert named_in("FROM topic_stats JOIN kafka_lag") == ("records", "messages", "topic_stats", "kafka_lag")
    for name in VIEWS:
        read = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", re.sub(r"--.*", "", view(name).statement)))
        assert {name, *read & set(VIEWS)} <= set(named_in(name))


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_in_it_changes_between_two_looks(name: str) -> None:
    assert not re.search(r"current_(date|time)|now\(\)|rand\(|uuid\(", view(name).statement)


@pytest.mark.parametrize(
    "statement",
    [
        GOOD.replace("VIEW one", "VIEW other"),
        GOOD.replace("COMMENT 'says one'\n", ""),
        GOOD.replace(" COMMENT 'first'", ""),
        GOOD.replace("'first'", "'first',\n  a COMMENT 'again'"),
        GOOD.replace("AS\n", ""),
    ],
    ids=["another name", "no comment", "a column without one", "a column twice", "no query"],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    unheard = view.__wrapped__  # what is cached stays as it is
    (tmp_path / "one.sql").write_text(GOOD, encoding="utf-8")
    assert unheard("one").columns == {"a": "first"}
    (tmp_path / "one.sql").write_text(statement, encoding="utf-8")
    with pytest.raises(ValueError, match=r"^one\.sql"):
        unheard("one")
