"""A page in Chinese says what the English one says: the same headings, blocks, links, code and figures, in step.

Its blocks are the English ones but for their comments, so `tests/test_documents.py` runs those for both.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests import documents
from tests.documents import PROJECT, blocks
from tests.test_links_doc import anchor, links, prose

CHINESE: Final = ".zh-CN.md"
PAGES: Final = [str(page.relative_to(PROJECT)) for page in documents.PAGES if page.name.endswith(CHINESE)]

_HEADING = re.compile(r"^(#+) +(.+?) *$", re.M)
_SPAN = re.compile(r"`([^`]+)`")
_COMMENT = re.compile(r"(^| +)(#|--) .*$", re.M)
_ITEM = re.compile(r"^(\||\* )", re.M)
_FIGURE = re.compile(r"\d[\d.,]*\d|\d")


def english(page: str) -> str:
    return page.replace(CHINESE, ".md")


def code(page: str) -> list[tuple[str, str]]:
    """Its blocks without their comments."""
    return [(one.language, _COMMENT.sub("", one.text)) for one in blocks(page)]


def parts(page: str) -> list[str]:
    """What stands below each heading, without blocks and what is said about them."""
    return re.split(r"^#+ .*$", re.sub(r"<!--.*?-->", "", prose(PROJECT / page)), flags=re.M)


def targets(page: str) -> Counter[str]:
    """Where its links lead: of a page that is translated, to which of its headings."""
    return Counter(_target(PROJECT / page, link) for link in links(PROJECT / page))


def _target(page: Path, link: str) -> str:
    path, _, heading = link.partition("#")
    file = (page.parent / path).resolve() if path else page
    name = english(str(file.relative_to(PROJECT)))
    if heading and name in map(english, PAGES):
        heading = str([anchor(text) for _, text in _HEADING.findall(prose(file))].index(heading))
    return f"{name}#{heading}"


def items(text: str) -> Counter[str]:
    """Rows of tables, and of lists."""
    return Counter(_ITEM.findall(text))


def spans(text: str) -> Counter[str]:
    """Code in its text."""
    return Counter(" ".join(span.split()) for span in _SPAN.findall(text))


def figures(text: str) -> Counter[str]:
    """Of what a reader sees: not in the targets of links, which have their own test."""
    return Counter(_FIGURE.findall(re.sub(r"\]\([^)\s]*\)", "]", text)))


def test_the_pages_that_one_reads_first_are_there() -> None:
    assert PAGES == ["README.zh-CN.md", "docs/first-job.zh-CN.md"]


@pytest.mark.parametrize("page", PAGES)
class TestInStep:
    def test_blocks(self, page: str) -> None:
        assert code(page) == code(english(page))

    def test_headings(self, page: str) -> None:
        levels = [[level for level, _ in _HEADING.findall(prose(PROJECT / one))] for one in (page, english(page))]
        assert levels[0] == levels[1]

    def test_links(self, page: str) -> None:
        assert targets(page) == targets(english(page))

    def test_each_part_has_the_same_items_code_and_figures(self, page: str) -> None:
        for ours, theirs in zip(parts(page), parts(english(page)), strict=True):
            for what in (items, spans, figures):
                assert what(ours) == what(theirs), ours


def test_a_page_that_fell_behind_is_found() -> None:
    assert _COMMENT.sub("", "a = 1  # one\n-- two\n$ x --y   # z\n") == "a = 1\n\n$ x --y\n"
    assert figures("1,020 rows in 0.6 s, of 16") == Counter(["1,020", "0.6", "16"])
    assert _target(PROJECT / "README.md", "docs/first-job.md#the-demo") == _target(
        PROJECT / "README.zh-CN.md", "docs/first-job.zh-CN.md#演示"
    )
