"""The documents, and the files for dashboards, schedulers and hosts, that come with logtwin.

They lie at the same places below one folder: of the source tree, or, once a wheel is installed, share/logtwin of the
environment (``[tool.setuptools.data-files]`` of pyproject.toml).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

from sources.errors import ConfigurationError

_SIGN: Final = "conf/logtwin.toml"
_PAGES: Final = ("README*.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/*.md", "docs/decisions/*.md", _SIGN)
_AIRFLOW: Final = "airflow_dags/README.md"
_FILES: Final = ("conf/Dockerfile", "conf/logtwin.toml", "conf/*/*", "pipeline/submit.py")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.M)
_MARK: Final = re.compile(r"^<!-- .*? -->\n", re.M | re.S)


def pages() -> dict[str, Path]:
    """Every page, by the name that ``logtwin docs`` gives it. Raises ConfigurationError."""
    folder = _folder()
    found = {_name(page.relative_to(folder)): page for pattern in _PAGES for page in sorted(folder.glob(pattern))}
    return found | {"airflow": folder / _AIRFLOW}


def title(page: Path) -> str:
    heading = _HEADING.search(page.read_text())
    return "every key, with its default" if page.suffix == ".toml" or heading is None else heading[1]


def text_of(name: str) -> str:
    """The Markdown of the page `name`, without what only our tests read. Raises ConfigurationError."""
    known = pages()
    page = known.get(_name(Path(name)))
    if page is None:
        near = get_close_matches(name.lower(), known, n=1)
        raise ConfigurationError(
            f"there is no page {name!r}",
            hint=f"Did you mean {near[0]}?" if near else "logtwin docs lists them.",
        )
    text = page.read_text()
    return f"```toml\n{text}```\n" if page.suffix == ".toml" else _MARK.sub("", text)


def write_files(to: Path) -> list[Path]:
    """Write all files but documents to their places below `to`. A file that is there with the same content stays.

    Raises ConfigurationError, and writes nothing, if a file there has another content.
    """
    folder = _folder()
    wanted = [path for pattern in _FILES for path in sorted(folder.glob(pattern))]
    wanted += [path for path in sorted((folder / "airflow_dags").iterdir()) if path.is_file()]
    content: Mapping[Path, bytes] = {to / path.relative_to(folder): path.read_bytes() for path in wanted}
    try:
        changed = [str(path) for path, data in content.items() if path.exists() and path.read_bytes() != data]
        if changed:
            raise ConfigurationError(
                f"{to} has other files of these names",
                found=", ".join(changed),
                hint="Give another folder, or move them away: they may have changes of yours.",
            )
        for path, data in content.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"{to} cannot be written", expected="a folder of ours", found=error) from error
    return list(content)


def _name(page: Path) -> str:
    """docs/sql.md -> sql, docs/decisions/README.md -> decisions, README.md -> readme, conf/logtwin.toml as it is."""
    if page.suffix == ".toml":
        return page.name
    return str(page.with_suffix("")).removeprefix("docs/").removesuffix("/README").lower()


def _folder() -> Path:
    """Find the folder. Raises ConfigurationError if it did not come along: spark-submit distributes code alone."""
    tree = Path(__file__).parents[2]
    if (tree / _SIGN).is_file():
        return tree
    try:
        for one in files("logtwin") or ():
            if str(one).endswith(f"share/logtwin/{_SIGN}"):
                return Path(str(one.locate())).resolve().parents[1]
    except PackageNotFoundError:
        pass
    raise ConfigurationError(
        "the documents and files of logtwin are not here",
        expected=f"share/logtwin/{_SIGN} of an installed wheel, or a source tree",
        hint="Ask where logtwin is installed.",
    )
