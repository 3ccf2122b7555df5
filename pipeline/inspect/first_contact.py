"""What the masters of a configuration say when they are asked for the first time: side by side, and within seconds.

Nothing is promised to them, and no position is told: nobody connects to an HA port whose broker would count that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Final

from pipeline.config.configuration import Config
from sources.discovery import Discovery
from sources.errors import ConfigurationError, LogtwinError, MasterError, MasterSilent, NobodyListens, of_log
from sources.group.asking import Answer, Asker
from sources.master import Master
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.registry import FollowedOptions, open_master

WITHIN_S: Final = 3.0
_SHOWN: Final = 5

log = logging.getLogger(__name__)

Question = tuple[str, Callable[[], "Contact"]]
"""Who is asked, for whoever waits in vain, and how."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The words that the master of `name`, a log, a topic or a pattern, has `said`; or the `error`.

    `found` are the logs or topics that a pattern matches now; None if it is no pattern. `is_late`: it had not answered
    when the time was up.
    """

    name: str
    said: str = ""
    error: LogtwinError | None = None
    found: Mapping[LogId, FollowedOptions] | None = None
    is_late: bool = False

    @property
    def is_right(self) -> bool:
        return self.error is None


def contacts(config: Config, within_s: float = WITHIN_S, *, asks_rights: bool = False) -> list[Contact]:
    """Ask for each log, topic and pattern that `config` names; with `asks_rights` also what we may do there.

    A master of RocketMQ shows by its answers whether it knows us: no request of ours needs more.
    """
    if config.topics:
        import sources.kafka.topic  # noqa: F401 - now: a pattern loads the client in its own time
    entries: list[Discovery[FollowedOptions]] = [*config.log_entries, *config.topics]
    asked: dict[str, Question] = {}
    for entry in entries:
        if entry.is_pattern:
            name = ", ".join(entry.names)
            asked[name] = ("its servers", partial(_listed, name, entry))
        else:
            asked |= _askers(entry.find(), asks_rights)
    return _side_by_side(asked, within_s)


def contacts_of(found: Mapping[LogId, FollowedOptions], within_s: float = WITHIN_S) -> list[Contact]:
    """Ask for each of `found`, also what we may do there."""
    return _side_by_side(_askers(found, asks_rights=True), within_s)


def _askers(found: Mapping[LogId, FollowedOptions], asks_rights: bool) -> dict[str, Question]:
    """The question to each. Its master is made here, in nobody's time: that imports what speaks to it."""
    return {str(log_id): _asker(str(log_id), options, asks_rights) for log_id, options in found.items()}


def _asker(name: str, options: FollowedOptions, asks_rights: bool) -> Question:
    try:
        master = open_master(options)
    except LogtwinError as error:
        return name, partial(Contact, name, error=error)
    at = (options.remoting if isinstance(options, ReadOptions) else None) or master.address
    return at, partial(_asked, master, at, asks_rights)


def _listed(name: str, entry: Discovery[FollowedOptions]) -> Contact:
    odd: list[str] = []
    found = entry.find(lambda text, *facts: odd.append(text % facts))
    some = ", ".join(map(str, [*found][:_SHOWN])) + (", …" if len(found) > _SHOWN else "")
    said = [f"{len(found)} now: {some}"] if found else []
    return Contact(name, "; ".join([*said, *odd]) or "nothing matches now", found=found)


def _asked(master: Master, at: str, asks_rights: bool) -> Contact:
    master.check()
    if asks_rights and master.id.has_partitions:
        from sources.kafka.topic import KafkaTopic  # loaded by now

        assert isinstance(master, KafkaTopic)  # noqa: S101 - nothing else has partitions
        master.check_rights()
    said = _topic_words(master) if master.id.has_partitions else _log_words(master)
    return Contact(str(master.id), f"{at}: {said}")


def _log_words(master: Master) -> str:
    view = master.view()
    who = " ".join(word for word in (view.version, view.role) if word)
    named = f"it calls itself {view.name}, " if view.name and view.name != master.id.name else ""
    return f"{named}{who + ', ' if who else ''}holds {view.bounds.start:,} to {view.bounds.end:,}"


def _topic_words(master: Master) -> str:
    """Describe a topic, and what its group has committed: asking for that checks our rights on it."""
    held = master.poll({})
    for one in held.values():
        if isinstance(one, LogtwinError):
            raise one
    acknowledged = master.acknowledged_by_master()
    spans = [one.bounds for one in held.values() if not isinstance(one, LogtwinError)]
    group = f"; a group has committed in {len(acknowledged)} of them" if acknowledged else ""
    return f"{len(spans)} partitions, {sum(one.size for one in spans):,} offsets{group}"


def _side_by_side(asked: Mapping[str, Question], within_s: float) -> list[Contact]:
    """The answers that come in time. Who is late is asked on, in threads that keep no process from its end."""
    until_s = time.monotonic() + within_s
    asker: Asker[str] = Asker()
    for name, (_, ask) in asked.items():
        asker.ask(name, ask)
    found: dict[str, Contact] = {}
    while len(found) < len(asked) and (taken := asker.take(max(until_s - time.monotonic(), 0.0))):
        found |= {one.key: _contact(one) for one in taken}
    return [found.get(name) or _late(name, at, within_s) for name, (at, _) in asked.items()]


def _contact(answer: Answer[str]) -> Contact:
    if isinstance(answer.value, Contact):
        return answer.value
    assert isinstance(answer.value, Exception)  # noqa: S101 - the other kind of answer
    return Contact(answer.key, error=of_log(answer.value, answer.key))


def _late(name: str, at: str, within_s: float) -> Contact:
    error = MasterSilent(
        "the master has not answered",
        log=name,
        expected=f"an answer within {within_s:g} s",
        found=f"none from {at}",
        hint="Check the address or the path, and whether something blocks the way.",
    )
    return Contact(name, error=error, is_late=True)


def tell_at_start(config: Config, said: dict[str, str]) -> None:
    """Tell, before a job starts Spark, who does not answer. If one table is all there is, raise what would end the job.
    `said` gets what was told, by name; of several tables when they have been asked, in a thread.

    With several, one that is away must not keep the others from being replicated: they are asked while the job starts.
    What a pattern would match may be in the replica, and nobody is refused for being late. Raises MasterError,
    ConfigurationError.
    """
    if len(config.logs) + len(config.clusters) + len(config.topics) != 1:
        Thread(target=lambda: _warn(contacts(config), said), name="first contact", daemon=True).start()
        return
    told = contacts(config)
    errors = [one.error for one in told if one.error is not None and not one.is_late]
    is_alone = len(told) == 1 and not config.has_patterns and config.shard is None
    if errors and len(errors) == len(told):
        ends_it = (MasterError, ConfigurationError) if is_alone else NobodyListens
        if isinstance(errors[0], ends_it):
            raise errors[0]
    _warn(told, said)


def _warn(told: Sequence[Contact], said: dict[str, str]) -> None:
    for one in told:
        if one.error is not None:
            said[one.name] = str(one.error)
            log.warning("%s", one.error)
