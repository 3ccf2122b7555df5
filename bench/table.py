"""The results of a day as Markdown: one table of all figures, then the details of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench.contest import Figure
from bench.results import Measured, Results, median_against, median_ours

_HEAD = ("work", "ours", "against", "ours, median", "against, median", "ratio (least – greatest)", "goal", "met")


def markdown(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def number(value: float) -> str:
    """`value` with three significant digits, and separators for thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _lines(results: Results) -> Iterator[str]:
    yield f"# Measured on {results.date}"
    yield ""
    yield "; ".join(f"{name}: {value}" for name, value in results.machine.items()) + "."
    yield "Ratios are medians of rounds in which both were measured one right after the other."
    yield ""
    yield f"![ratios and goals]({results.date}.svg)"
    yield ""
    yield _row(_HEAD)
    yield _row("---" for _ in _HEAD)
    yield from (_row(_cells(figure)) for figure in results.figures)
    for name, work in results.works.items():
        yield from _explained(name, work)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.work,
        figure.ours,
        figure.against,
        f"{number(median_ours(figure))} {figure.unit}",
        f"{number(median_against(figure))} {figure.unit}",
        f"**{figure.ratio:.2f}** ({min(figure.ratios):.2f} – {max(figure.ratios):.2f})",
        str(figure.goal),
        "yes" if figure.is_met else "**no**",
    )


def _explained(name: str, work: Measured) -> Iterator[str]:
    yield from ("", f"## {name}", "")
    yield f"Rounds: {work.rounds}; size: {work.scale:g} of the full one; commit: {work.commit or 'unknown'}."
    if work.error is not None:
        yield from ("", f"**Did not come to its end:** {work.error}")
    for figure in work.figures:
        yield from ("", f"### {figure.work}: {figure.ours}, against {figure.against}", "")
        yield f"- round by round: {', '.join(f'{ratio:.2f}' for ratio in figure.ratios)}"
        for key, value in figure.details.items():
            yield from _detail(key, value, depth=0)


def _detail(key: str, value: Any, *, depth: int) -> Iterator[str]:
    """The line of a detail, followed by lines for the items of `value` if it is a mapping."""
    if isinstance(value, Mapping):
        yield f"{'  ' * depth}- {key}:"
        for inner, one in value.items():
            yield from _detail(str(inner), one, depth=depth + 1)
    else:
        yield f"{'  ' * depth}- {key}: {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(one) for one in value)
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_text(one)}" for key, one in value.items()) + ")"
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
