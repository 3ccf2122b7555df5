"""Each link of the documents leads to a file of the project and, where it names one, to a heading in it."""

import re
from functools import cache
from pathlib import Path

from tests import documents
from tests.documents import PROJECT

DOCS = PROJECT / "docs"
DECISIONS = DOCS / "decisions"
PAGES = [*documents.PAGES, *sorted((PROJECT / "bench" / "results").glob("[a-z]*.md"))]

OTHERS = ("conf/plain_acl.yml",)  # RocketMQ's

_PATH = re.compile(r"`((?:sources|sinks|pipeline|tests|bench|conf|airflow_dags)/[\w./-]*)`")
_FENCED = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@cache
def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return _FENCED.sub("", page.read_text())


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a link may name of a page: its headings, as GitHub and MkDocs spell them."""
    return frozenset(anchor(heading) for heading in _HEADING.findall(prose(page)))


def anchor(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # of a link its text
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")


def links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(prose(page)) if "://" not in link]


def broken(page: Path, link: str) -> str | None:
    """What is wrong with a link of a page."""
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(PROJECT):
        return f"{link}: out of the project"
    if not target.is_file():
        return f"{link}: no such file"
    return f"{link}: no such heading" if heading and heading not in anchors(target) else None


def test_each_link_leads_somewhere() -> None:
    found = [(str(page.relative_to(PROJECT)), broken(page, link)) for page in PAGES for link in links(page)]
    assert [one for one in found if one[1]] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = PROJECT / "README.md"
    assert broken(page, "docs/nowhere.md") == "docs/nowhere.md: no such file"
    assert broken(page, "docs/kafka.md#nowhere") == "docs/kafka.md#nowhere: no such heading"
    assert broken(page, f"{tmp_path}/x.md") == f"{tmp_path}/x.md: out of the project"
    assert broken(page, "docs/security.md#who-may-ask-a-server-of-logtwin-sql") is None


def test_the_index_lists_each_decision_by_its_title() -> None:
    index = " ".join((DECISIONS / "README.md").read_text().split())
    for record in sorted(DECISIONS.glob("0*.md")):
        number, _, title = record.read_text().splitlines()[0].removeprefix("# ").partition(": ")
        assert record.name.startswith(f"{number}-")
        assert f"* [{number}]({record.name}): {title} " in index


def test_a_decision_is_short_and_has_three_parts() -> None:
    for record in sorted(DECISIONS.glob("0*.md")):
        text = record.read_text()
        assert _HEADING.findall(text)[1:] == ["Context", "Decision", "Consequence"], record.name
        assert len(text.splitlines()) <= 32, record.name


def test_the_readme_is_short_and_architecture_is_no_diary() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 140
    assert len((PROJECT / "ARCHITECTURE.md").read_text().splitlines()) <= 250


def test_the_files_that_documents_name_are_there() -> None:
    """In code, as `sinks/delta/kernel.py`. Short names are the reader's to find, and those in `OTHERS` are not ours."""
    named = {
        (str(page.relative_to(PROJECT)), path)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for path in _PATH.findall(page.read_text())
    }
    assert sorted(one for one in named if one[1] not in OTHERS and not (PROJECT / one[1]).exists()) == []
