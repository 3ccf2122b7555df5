"""Groups the verbs in ``logtwin --help`` by purpose, each with its whole summary."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

REPLICATE = "Replicate"
PROVE = "Prove it and heal it"
QUERY = "Query it"
DISTER = "dister, a key-value store"
TRY = "Try it without a broker"

_ORDER = (REPLICATE, PROVE, QUERY, DISTER, TRY)
_WHOLE = 1000  # characters of a summary: none is as long


class VerbGroups(TyperGroup):
    """Lists verbs under their `rich_help_panel`. Typer itself does that only when Rich draws the help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs group by group; those without a group come last."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _ORDER}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                group = getattr(command, "rich_help_panel", None)
                title = group if isinstance(group, str) else "Commands"
                groups.setdefault(title, []).append((name, command.get_short_help_str(_WHOLE)))
        for title, verbs in groups.items():
            if verbs:
                with formatter.section(title):
                    formatter.write_dl(verbs)
