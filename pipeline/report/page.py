"""Renders facts as one self-contained HTML page. Pure.

What must hold: the page asks nobody for anything, and runs no script but its own two, whatever is in the data. The
template escapes every text where it becomes HTML, or JSON in HTML, unless it is marked as safe, which only the page's
own style and scripts are. A Content-Security-Policy that names the two scripts by their hashes stands behind that.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from pipeline.monitoring.display import moment
from pipeline.report.drawing.palette import for_dark_screens, style_rules
from pipeline.report.drawing.plotting import with_marks
from pipeline.report.drawing.sections import sections
from pipeline.report.drawing.wording import Level, count, headlines, summary
from pipeline.report.facts import Facts

_MANY_LOGS: Final = 12


def page(facts: Facts) -> str:
    """The whole page. Of many logs, those that are well are folded up."""
    parts = sections(facts)
    level, sentence = summary(facts)
    said = headlines(facts)
    is_folded = len(said) > _MANY_LOGS
    return (
        _environment()
        .from_string(_own("page.html"))
        .render(
            facts=facts,
            level=level,
            summary=sentence,
            shown=[one for one in said if not is_folded or one.level is not Level.GOOD],
            folded=[one for one in said if is_folded and one.level is Level.GOOD],
            sections=parts,
            figures={f"{one.name}-{at}": drawn.figure for one in parts for at, (_, drawn) in enumerate(one.plots)},
            colours=for_dark_screens(),
            style=style_rules() + _own("page.css"),
            plotly=get_plotlyjs(),
            script=_own("page.js"),
        )
    )


def _environment() -> Environment:
    made = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )
    made.globals |= {"count": count, "moment": moment, "hash_of": _hash_of}
    made.policies["json.dumps_kwargs"] = {"cls": PlotlyJSONEncoder, "separators": (",", ":")}
    return made


def _shown(value: Any) -> Any:
    """What the template writes. A Markup, a subclass of str, is HTML already."""
    return with_marks(value) if type(value) is str else value


def _own(name: str) -> str:
    return resources.files("pipeline.report").joinpath(name).read_text(encoding="utf-8")


def _hash_of(script: str) -> str:
    """The hash of a script, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
