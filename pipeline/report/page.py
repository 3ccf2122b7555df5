"""Renders facts as one self-contained HTML page. Pure.

What must hold: the page loads nothing, and runs no script but its own two, whatever the data contains. Every text from
data is escaped when it becomes HTML (`_text`) or JSON in HTML (`_json`). A Content-Security-Policy that names the two
scripts by their hashes is the second line of defence.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Final

from plotly.offline import get_plotlyjs

from pipeline.monitoring.display import moment
from pipeline.report.drawing.palette import for_dark_screens, style_rules
from pipeline.report.drawing.plotting import Drawn, Key
from pipeline.report.drawing.sections import Section, Tile, sections
from pipeline.report.drawing.tables import Column, Table
from pipeline.report.drawing.wording import Headline, Level, count, headlines, summary
from pipeline.report.facts import Facts

_MANY_LOGS: Final = 12


def page(facts: Facts) -> str:
    """The whole page as HTML."""
    shown = sections(facts)
    level, sentence = summary(facts)
    plotly, script = get_plotlyjs(), _own("page.js")
    figures = {f"{one.name}-{at}": drawn for one in shown for at, (_, drawn) in enumerate(one.plots)}
    return Template(_own("page.html")).substitute(
        policy=f"script-src {_hash_of(plotly)} {_hash_of(script)}",
        title=_text(f"Replica {facts.warehouse}, {moment(facts.made_at)}, version {facts.version}"),
        style=style_rules() + _own("page.css"),
        warehouse=_text(facts.warehouse),
        made_at=_text(moment(facts.made_at)),
        made_at_iso=facts.made_at.isoformat(timespec="seconds"),
        version=f"{facts.version:,}",
        level=level.value,
        summary=_text(sentence),
        headlines=_headlines(headlines(facts)),
        navigation="\n".join(f'<a href="#{one.name}">{_text(one.title)}</a>' for one in shown),
        sections="\n".join(map(_section, shown)),
        colours=_json(json.dumps(for_dark_screens())),
        figures=_json(f"{{{','.join(f'{json.dumps(name)}:{one.figure.to_json()}' for name, one in figures.items())}}}"),
        plotly=plotly,
        script=script,
    )


def _own(name: str) -> str:
    return resources.files("pipeline.report").joinpath(name).read_text(encoding="utf-8")


def _hash_of(script: str) -> str:
    """The hash of a script, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    """Text escaped for HTML, with unprintable characters replaced by a visible one."""
    return html.escape("".join(char if char.isprintable() else "�" for char in text))


def _json(text: str) -> str:
    """JSON that cannot end a script element. The escaped characters occur only in its strings."""
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _headlines(said: Sequence[Headline]) -> str:
    """The list of logs; if there are many, those that are well are folded up."""
    well = [one for one in said if one.level is Level.GOOD] if len(said) > _MANY_LOGS else []
    shown = "".join(_headline(one) for one in said if one not in well)
    if not well:
        return f'<ul class="logs">{shown}</ul>'
    folded = "".join(map(_headline, well))
    summary_line = f"{count(len(well), 'log')} {'is' if len(well) == 1 else 'are'} complete"
    listed = f'<ul class="logs">{shown}</ul>' if shown else ""
    return f'{listed}<details class="well"><summary>{summary_line}</summary><ul class="logs">{folded}</ul></details>'


def _headline(one: Headline) -> str:
    details = "".join(f"<span>{_text(detail)}</span>" for detail in one.details)
    return (
        f'<li class="log {one.level.value}"><b>{_text(one.log_id)}</b>'
        f'<p>{_text(one.sentence)}</p><p class="details">{details}</p>{_parts(one.parts)}</li>'
    )


def _parts(parts: Sequence[Headline]) -> str:
    """The partitions of a topic, folded up under their number."""
    if not parts:
        return ""
    shown = "".join(map(_headline, parts))
    return f'<details><summary>{count(len(parts), "partition")}</summary><ul class="logs">{shown}</ul></details>'


def _section(one: Section) -> str:
    tiles = _tiles(one.tiles) if one.tiles else ""
    plots = "".join(_plot(f"{one.name}-{at}", *plot) for at, plot in enumerate(one.plots))
    tables = "".join(_disclosed(table, is_open=one.is_table_open) for table in one.tables if table.rows)
    said = "".join(f"<p>{_text(sentence)}</p>" for sentence in one.sentences)
    return (
        f'<section id="{one.name}" aria-labelledby="{one.name}-title">'
        f'<h2 id="{one.name}-title">{_text(one.title)}</h2>{said}'
        f"{tiles}{plots}{tables}</section>"
    )


def _tiles(tiles: Sequence[Tile]) -> str:
    shown = (f'<div class="tile"><b>{_text(one.value)}</b><span>{_text(one.name)}</span></div>' for one in tiles)
    return f'<div class="tiles">{"".join(shown)}</div>'


def _plot(name: str, caption: str, drawn: Drawn) -> str:
    said, height = _text(caption), drawn.figure.layout.height
    return (
        f"<figure><figcaption>{said}</figcaption>{_legend(drawn.legend)}"
        f'<div class="plot" id="{name}" role="img" aria-label="{said}" style="height:{height}px"></div></figure>'
    )


def _legend(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    items = "".join(
        f'<li><i class="{key.mark}" style="--of:var(--{key.colour})"></i>{_text(key.name)}</li>' for key in keys
    )
    return f'<ul class="legend">{items}</ul>'


def _disclosed(table: Table, *, is_open: bool) -> str:
    """A table folded up under its name.

    The roles keep it a table for screen readers when a phone shows its rows as blocks.
    """
    head = "".join(f'<th role="columnheader"{_class(column)}>{_text(column.name)}</th>' for column in table.columns)
    rows = "".join(_row(table.columns, row) for row in table.rows)
    note = f"<p>{_text(table.note)}</p>" if table.note else ""
    return (
        f"<details{' open' if is_open else ''}><summary>{_text(table.name)} "
        f"<small>{count(len(table.rows), 'row')}</small></summary>{note}"
        f'<div class="wide"><table role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{rows}</tbody></table></div></details>'
    )


def _row(columns: Sequence[Column], cells: Sequence[str]) -> str:
    shown = "".join(
        f'<td role="cell" data-label="{_text(column.name)}"{_class(column)}>{_text(cell)}</td>'
        for column, cell in zip(columns, cells, strict=True)
    )
    return f'<tr role="row">{shown}</tr>'


def _class(column: Column) -> str:
    kinds = [kind for kind, holds in (("number", column.is_number), ("short", column.is_short)) if holds]
    return f' class="{" ".join(kinds)}"' if kinds else ""
