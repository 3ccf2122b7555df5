"""The code blocks of a document, and what it says of those that nobody runs.

A comment that nobody sees stands right above a block: ``<!-- not run: why -->``, or of one command of a block
``<!-- not run: `command`: why -->``.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]
PAGES: Final = sorted(
    [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "airflow_dags").glob("*.md")]
)
"""All documents."""

_BLOCK: Final = re.compile(r"((?:^<!-- not run: [^\n]* -->\n)*)^```(\w+)\n(.*?)^```$", re.M | re.S)
_MARK: Final = re.compile(r"<!-- not run: (?:`(.+?)`: )?(.+) -->")


@dataclass(frozen=True)
class Block:
    """`marks` are the commands that are not run, each with why; None stands for all of it."""

    document: str
    line: int
    language: str
    text: str
    marks: dict[str | None, str]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def is_run(self) -> bool:
        return None not in self.marks

    @property
    def commands(self) -> list[str]:
        """Of a console the lines after ``$``, of a shell's script each line; without the comments behind them."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [re.sub(r"\s+#.*$", "", line).strip() for line in lines]

    @property
    def wanted(self) -> list[str]:
        """The commands that are run."""
        return [one for one in self.commands if one not in self.marks]

    @property
    def statements(self) -> list[str]:
        """Of SQL."""
        without = re.sub(r"^--.*$", "", self.text, flags=re.M)
        return [one.strip() for one in without.split(";\n") if one.strip()]


def blocks(document: str) -> list[Block]:
    """All of them in order."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        marks = {what or None: why for what, why in _MARK.findall(match[1])}
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Block(document, line, match[2], match[3], marks))
    return found
