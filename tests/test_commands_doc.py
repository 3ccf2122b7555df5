"""The commands and configurations that the documents show are ones that there are: verbs, options, targets, keys."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from pipeline.cli.app import app
from pipeline.config.configuration import load
from sources.errors import ConfigurationError
from tests import documents
from tests.documents import PROJECT

PAGES = [page for page in documents.PAGES if page.name != "CHANGELOG.md"]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(r"^(?:[$#] )?(?:\S+/)?logtwin (.*)$", re.MULTILINE)
_TARGET = re.compile(r"^(?:[$#] )?make ([a-z][a-z-]*)", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(PROJECT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in _BLOCK.findall(page.read_text()) if language in languages]


def told(page: Path) -> Iterator[str]:
    """What a page shows as commands: lines of its blocks, and code in its text."""
    yield from blocks(page, "console", "sh")
    for span in _SPAN.findall(_BLOCK.sub("", page.read_text())):
        yield " ".join(span.split())


@cache
def root() -> Any:
    """The tree of commands, of the click that Typer brings."""
    return typer.main.get_command(app)


def unknown(line: str) -> list[str]:
    """What of the words after `logtwin` does not exist: a verb, or an option of it."""
    words = line.split()
    command, options = root(), known(root())
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        found = command.commands.get(words[0])
        if found is None:
            return [f"logtwin {line}: no verb {words[0]}"]
        command, options, words = found, options | known(found), words[1:]
    said = re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words))
    return [f"logtwin {line}: no option {option}" for option in said if option not in options]


def known(command: Any) -> set[str]:
    return {"--help"} | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_each_verb_and_option_exists() -> None:
    lines = [(name_of(page), line) for page in PAGES for text in told(page) for line in _COMMAND.findall(text)]
    assert [(name, found) for name, line in lines for found in unknown(line)] == []


def test_what_does_not_exist_is_found() -> None:
    assert unknown("replicate --config F --for-ever") == [
        "logtwin replicate --config F --for-ever: no option --for-ever"
    ]
    assert unknown("mend") == ["logtwin mend: no verb mend"]
    assert unknown("tables show NAME") == []


def test_each_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    said = {(name_of(page), target) for page in PAGES for text in told(page) for target in _TARGET.findall(text)}
    assert [(name, target) for name, target in sorted(said) if target not in targets] == []


CONFIGURATIONS = [
    pytest.param(text, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, text in enumerate(blocks(page, "toml"), 1)
]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_each_configuration_is_one(text: str, tmp_path: Path) -> None:
    """Or a part of one: what a part leaves to the reader is given here."""
    if text.startswith("format"):
        text = f'[[tables]]\nname = "orders"\nfrom = ["orders"]\n{text}'
    file = tmp_path / "job.toml"
    file.write_text(text.replace("…", "x"))
    try:
        load(file)
    except ConfigurationError as error:
        pytest.fail(str(error))
