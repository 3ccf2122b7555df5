"""Check what is read of a Delta log: a commit by itself, a checkpoint by a commit, a version by its checksum. Pure.

A commit does not say where it ends, and a checkpoint names neither its version nor its table. But

    a commit (N.json)  has a `commitInfo`, whoever wrote it; in ours that also counts the other actions
    a checkpoint       has what the commit of its version did: the files that it added, and none that it removed; the
                       transaction versions and domain metadata that it wrote; its protocol and metadata
    a checksum (N.crc) says how many files version N has, and bytes in them, and the metadata of its domains

(Delta protocol, "Commit Provenance Information", "Action Reconciliation", "Version Checksum File".) Kernel takes the
metadata of domains from a checksum without comparing it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

ENGINE: Final = "logtwin"
_COUNTED: Final = re.compile(rf"{ENGINE}, (\d+) actions$")
_KEYS: Final = {"add": "path", "remove": "path", "txn": "appId", "domainMetadata": "domain"}
_SAID: Final = {"txn": "version", "domainMetadata": "configuration", "protocol": "minWriterVersion", "metaData": "id"}
KINDS: Final = tuple(dict.fromkeys((*_KEYS, *_SAID)))
"""The kinds of actions that leave something in a version."""

Action = Mapping[str, Any]
State = Mapping[tuple[str, Any], Any]
"""The last action on each file, application and domain, the protocol and the table: what it says, None if removed."""


def engine_info(actions: int) -> str:
    """The `engineInfo` of a commit that has this many other actions."""
    return f"{ENGINE}, {actions} actions"


def actions_of(commit: bytes) -> list[Action]:
    """The actions of a commit. Raises ValueError if some of it is missing."""
    actions = [_action(json.loads(line)) for line in commit.splitlines() if line.strip()]
    infos = [one["commitInfo"] for one in actions if "commitInfo" in one]
    if not infos:
        raise ValueError("no commitInfo is in it: it was emptied or cut")
    counted = _COUNTED.search(str(infos[0].get("engineInfo")))
    there = len(actions) - len(infos)
    if counted is not None and int(counted[1]) != there:
        raise ValueError(f"{there} of its {counted[1]} actions are in it: it was cut")
    return actions


def _action(line: object) -> Action:
    """Parse one line, without kinds that are null. Raises ValueError for what is no action."""
    said = {kind: what for kind, what in line.items() if what is not None} if isinstance(line, dict) else {}
    if not said or not all(isinstance(what, dict) for what in said.values()):
        raise ValueError("a line of it is no action")
    return said


def state_of(actions: Iterable[Action]) -> dict[tuple[str, Any], Any]:
    """The state that `actions` leave. Raises LookupError for what is no action of Delta."""
    found: dict[tuple[str, Any], Any] = {}
    for action in actions:
        for kind, one in action.items():
            if one is None or kind not in KINDS:
                continue
            said = None if one.get("removed") else one.get(_SAID.get(kind, "path"))
            found[kind, one[_KEYS[kind]] if kind in _KEYS else None] = said
    return found


def disagreement(done: State, there: Callable[[tuple[str, Any]], Any]) -> str | None:
    """Say why the state that `there` gives by key is not that after a commit that has `done` this; None if it is."""
    for kind in ("protocol", "metaData"):
        if there((kind, None)) is None:
            return f"it has no {kind}"
    for (kind, key), said in done.items():
        found = there((kind, key))
        if kind == "remove":
            if there(("add", key)) is not None:
                return f"its commit removed the file {key}, which is in it"
        elif found != said and not (kind == "domainMetadata" and said is None):
            return f"its commit has {kind} {key or ''}: {said}, and it has {found}"
    return None


def checksum_of(content: bytes, commit: Iterable[Action]) -> Mapping[str, Any]:
    """What the checksum of the version that `commit` made says.

    Nothing if it names another commit, or is no JSON: nobody syncs it, so a crash may leave it empty.
    """
    try:
        said: dict[str, Any] = json.loads(content)
        ids = {one["commitInfo"].get("txnId") for one in commit if "commitInfo" in one}
        return said if said.get("txnId") is None or said["txnId"] in ids or not ids else {}
    except (AttributeError, ValueError):
        return {}


def contradiction(checksum: Mapping[str, Any], files: int, size_bytes: int, domains: Mapping[str, str]) -> str | None:
    """Say why a version of so many `files` and bytes, with these `domains`, is not `checksum`'s; None if it is."""
    for name, found in (("numFiles", files), ("tableSizeBytes", size_bytes)):
        if checksum.get(name) not in (None, found):
            return f"it has {name} {checksum[name]}, and the Delta log gives {found}"
    said = checksum.get("domainMetadata")
    if said is None:
        return None
    wanted = {one["domain"]: one["configuration"] for one in said if not one.get("removed")}
    names = sorted(name for name in {*wanted, *domains} if wanted.get(name) != domains.get(name))
    return f"the Delta log gives other metadata of the domain {names[0]}" if names else None
