"""A hook of MkDocs: the site also has the pages and files beside docs/ that docs/ links to.

Documents link to each other by their places in the repository, so that links work there, too. Here a link is turned
into one between places in the site: docs/x.md is x.md there, README.md is index.md, anything else stays where it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

PROJECT: Final = Path(__file__).parents[1]
PAGES: Final = (
    "README.md",
    "README.zh-CN.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "airflow_dags/README.md",
    "bench/results/history.md",
    "bench/results/long-runs.md",
    "bench/results/unit-tests.md",
)
_LINK: Final = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> None:
    """Headings in Chinese have names that links can have, as on GitHub."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages beside docs/, and each file that one of the pages links to."""
    for path in PAGES:
        files.append(_file(path, config))
    for path in sorted({target for file in files.documentation_pages() for target in _targets(file)}):
        if files.get_file_from_path(_in_site(path)) is None and (PROJECT / path).is_file():
            files.append(_file(path, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links from place in the repository to place in the site; of what is no page or file nothing changes."""
    here = PurePosixPath(page.file.src_uri).parent
    lies_at = PurePosixPath(_lies_at(page.file)).parent

    def turned(link: re.Match[str]) -> str:
        target = os.path.normpath(lies_at / link[2])
        if "://" in link[2] or not (PROJECT / target).is_file():
            return link[0]
        return link[1] + os.path.relpath(_in_site(target), here) + link[3]

    return _LINK.sub(turned, markdown)


def _file(path: str, config: MkDocsConfig) -> File:
    return File.generated(config, _in_site(path), abs_src_path=str(PROJECT / path))


def _in_site(path: str) -> str:
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def _lies_at(file: File) -> str:
    """In the repository."""
    return str(Path(file.abs_src_path or "").relative_to(PROJECT))


def _targets(file: File) -> set[str]:
    folder = PurePosixPath(_lies_at(file)).parent
    return {os.path.normpath(folder / link[2]) for link in _LINK.finditer(file.content_string) if "://" not in link[2]}
