"""``[jars]``: where Java's libraries come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

FOLDER: Final = "LOGTWIN_JARS"
IVY_SETTINGS: Final = "LOGTWIN_IVY_SETTINGS"

_Path = Annotated[str, Field(min_length=1)]


class JarsConfig(BaseModel):
    """``[jars]``: by default Maven Central, once, into the cache folder. The environment may say otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: _Path | None = Field(
        None, description="what logtwin jars --to wrote: nothing is downloaded then; by default LOGTWIN_JARS"
    )
    ivy_settings: _Path | None = Field(
        None,
        description="Ivy's settings, which name a mirror instead of Maven Central; by default LOGTWIN_IVY_SETTINGS",
    )

    @property
    def chosen_folder(self) -> Path | None:
        """The folder that all jars are in; None if they are downloaded."""
        return _path(self.folder, FOLDER)

    @property
    def chosen_ivy_settings(self) -> Path | None:
        """The file of settings for downloads; None for Maven Central."""
        return _path(self.ivy_settings, IVY_SETTINGS)


FROM_ENVIRONMENT: Final = JarsConfig()
"""For who has no configuration."""


def _path(given: str | None, variable: str) -> Path | None:
    text = given or os.environ.get(variable)
    return Path(text).absolute() if text else None
