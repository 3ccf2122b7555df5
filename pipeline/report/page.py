"""Renders facts as one self-contained HTML page, and the page that stays open and takes that one in. Pure.

What must hold: the page asks nobody for anything (the one that stays open: nobody but its server), and runs no script
but its own, whatever is in the data. The template escapes every text where it becomes HTML, or JSON in HTML, unless it
is marked as safe, which only the page's own style and scripts are. A Content-Security-Policy that names the scripts by
their hashes stands behind that.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from pipeline.inspect.overview import Overview
from pipeline.monitoring.display import count, moment
from pipeline.report.drawing.now import ReportState, headlines_now, summary_now
from pipeline.report.drawing.plotting import for_dark_screens, style_rules, with_marks
from pipeline.report.drawing.sections import sections
from pipeline.report.drawing.wording import Headline, Level, headlines, summary
from pipeline.report.facts import Facts
from sources.errors import LogtwinError

_MANY_LOGS: Final = 12


def page(facts: Facts) -> str:
    """The whole page. Of many logs, those that are well are folded up."""
    parts = sections(facts)
    level, sentence = summary(facts)
    shown, folded = _folded(headlines(facts))
    return _rendered(
        "page.html",
        facts=facts,
        level=level,
        summary=sentence,
        shown=shown,
        folded=folded,
        sections=parts,
        figures={f"{one.name}-{at}": drawn.figure for one in parts for at, (_, drawn) in enumerate(one.plots)},
        plotly=get_plotlyjs(),
        **_looks(),
    )


def live_page(warehouse: str) -> str:
    """The page that stays open, empty."""
    return _rendered("live.html", warehouse=warehouse, live=_own("live.js"), **_looks())


def live_policy() -> str:
    """The Content-Security-Policy of the page that stays open: it asks its own server, and nobody else."""
    scripts = " ".join(map(_hash_of, (get_plotlyjs(), _own("page.js"), _own("live.js"))))
    return (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; connect-src 'self'; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src {scripts}"
    )


def now_part(seen: Overview | LogtwinError, at: datetime, every_s: float, report: ReportState) -> str:
    """Render the part of the live page for the time `at`, or why there is none; the page asks for it again."""
    given: dict[str, Any] = {"at": at, "every_s": f"{every_s:.0f}", "report": report, "report_said": report.said(at)}
    if isinstance(seen, LogtwinError):
        return _rendered("now.html", error=f"{type(seen).__name__}: {seen}", **given)
    said = headlines_now(seen)
    level, sentence = summary_now(seen, said)
    shown, folded = _folded(said)
    return _rendered(
        "now.html",
        error=None,
        level=level,
        summary=sentence,
        shown=shown,
        folded=folded,
        lines=list(seen.lines()),
        **given,
    )


def _folded(said: Sequence[Headline]) -> tuple[list[Headline], list[Headline]]:
    """Part the headlines into those shown at once and those folded up, which are well, if there are many."""
    if len(said) <= _MANY_LOGS:
        return list(said), []
    return [one for one in said if one.level is not Level.GOOD], [one for one in said if one.level is Level.GOOD]


def _looks() -> dict[str, Any]:
    """The styles and scripts of all pages."""
    return {"colours": for_dark_screens(), "style": style_rules() + _own("page.css"), "script": _own("page.js")}


def _rendered(template: str, **given: Any) -> str:
    return _environment().get_template(template).render(given)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("pipeline.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"count": count, "moment": moment, "hash_of": _hash_of}
    made.policies["json.dumps_kwargs"] = {"cls": PlotlyJSONEncoder, "separators": (",", ":")}
    return made


def _shown(value: Any) -> Any:
    """Convert a value that the template writes. A Markup, a subclass of str, is HTML already."""
    return with_marks(value) if type(value) is str else value


def _own(name: str) -> str:
    return resources.files("pipeline.report").joinpath(name).read_text(encoding="utf-8")


def _hash_of(script: str) -> str:
    """The hash of a script, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
