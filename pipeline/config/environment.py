"""Keys from the environment, for containers: ``LOGTWIN_WAREHOUSE``, ``LOGTWIN_METRICS__PORT``. They override the file.

A key of a section is named after two underscores. What is in a list, ``[[logs]]`` and the like, and ``[spark]``, whose
names have points, stand in the file alone. A variable that is empty counts as not set. One with two underscores whose
key does not exist is an error, and so is one that is almost a key. Any other is none: LOGTWIN_CACHE and its like, and
what Kubernetes sets in each container for a service that is called logtwin, as LOGTWIN_PORT.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, TypeAlias

from sources.errors import ConfigurationError

_PREFIX: Final = "LOGTWIN_"
_DEEPER: Final = "__"
_ALIKE: Final = 0.6
_ALMOST: Final = 0.85

Keys: TypeAlias = Mapping[str, Iterable[str]]
"""The keys of each section that the environment may set; those of ``""`` are in none."""


def taken(environment: Mapping[str, str], keys: Keys) -> dict[str, dict[str, str]]:
    """The keys of each section that `environment` sets, each with the name of its variable.

    Raises ConfigurationError, naming the variable, for one that is no key but looks like one.
    """
    known = {variable(section, key): (section, key) for section, of_it in keys.items() for key in of_it}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name in sorted(name for name, value in environment.items() if name.startswith(_PREFIX) and value):
        if name in known:
            section, key = known[name]
            found[section][key] = name
        else:
            _check_foreign(name, environment[name], known)
    return found


def variable(section: str, key: str) -> str:
    return _PREFIX + f"{section}{_DEEPER if section else ''}{key}".upper()


def _check_foreign(name: str, value: str, known: Iterable[str]) -> None:
    said = name.removeprefix(_PREFIX)
    is_deeper = _DEEPER in said.strip("_")
    if not is_deeper and "://" in value:
        return  # a service of Kubernetes
    plain = {one.removeprefix(_PREFIX): one for one in known}
    near = get_close_matches(said, plain, n=1, cutoff=_ALIKE if is_deeper else _ALMOST)
    if near or is_deeper:
        raise ConfigurationError(
            f"the variable {name} of the environment is no key",
            hint=f"Did you mean {plain[near[0]]}?" if near else "logtwin docs logtwin.toml shows every key.",
        )
