"""``logtwin report --serve``: for its owner alone, current, and idle while nobody looks."""

import os
import re
import socket
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipeline.inspect.overview import Overview
from pipeline.monitoring.progress import Phase, Progress
from pipeline.report.drawing.now import headlines_now, summary_now
from pipeline.report.drawing.wording import Level
from pipeline.report.serve import KeptOverview, LivePage, Reports
from pipeline.system.peers import peer_is_owner
from sources.errors import ReplicaError
from tests.patience import wait_until
from tests.pipeline.report.samples import BROKER, INJECTED, NOW
from tests.pipeline.report.served import served

SECRET = "s" * 43
HERE = "127.0.0.1:8642"


def seen(phase: Phase | None = Phase.RUNNING, hours_ago: int = 0, running: bool = True, **facts: object) -> Overview:
    at = (NOW - timedelta(hours=hours_ago)).isoformat()
    known = Progress(log_id=BROKER, role="slave", master="broker-a:10911", phase=phase, running=running, updated_at=at)
    log = replace(known, **facts)  # type: ignore[arg-type]
    return Overview(at=NOW, logs=[log], tables=(), jobs=(), upkeep=None, upkeep_every_s=3600)


@pytest.mark.parametrize(
    ("one", "level", "said"),
    [
        (seen(lag_s=4.0), Level.GOOD, "Replicated, 4 s behind its master."),
        (seen(lag_s=7200.0), Level.STALE, "It is 2 h behind its master."),
        (seen(master_error="no answer"), Level.STALE, "Replicated."),
        (seen(Phase.WAITING, last_error="no master"), Level.STALE, "The job waits: no master"),
        (seen(Phase.FAILED, running=False, last_error="a gap"), Level.BAD, r"The job failed .* ago\): a gap"),
        (seen(Phase.RUNNING, 3, running=False), Level.STALE, "Nobody replicates it: the job was last seen .*3 h ago"),
        (seen(Phase.DONE, running=False), Level.GOOD, "The job came to the end of the log"),
        (seen(Phase.DONE, 3, running=False), Level.STALE, "The job came to the end of the log .*3 h ago"),
        (seen(None, running=False), Level.UNSEEN, "Nothing of it is replicated yet."),
    ],
)
def test_each_state_has_its_words_and_its_alarm(one: Overview, level: Level, said: str) -> None:
    (told,) = headlines_now(one)
    assert (told.level, summary_now(one, [told])[0]) == (level, level)
    assert re.match(said, told.sentence)


@pytest.mark.parametrize(("takes_s", "rests_s"), [(0.0, 5.0), (4.0, 12.0)])
def test_it_looks_when_asked_and_not_again_for_all_who_ask_soon(takes_s: float, rests_s: float) -> None:
    now_s = [0.0]
    answers: list[Overview | Exception] = [seen(), ReplicaError("it is gone"), RuntimeError("a defect")]

    def look() -> Overview:
        now_s[0] += takes_s
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    kept = KeptOverview(look, lambda: now_s[0])
    first = kept.newest()
    now_s[0] += rests_s - 0.1
    assert kept.newest() is first
    now_s[0] += 0.2
    assert [str(kept.newest()[0]) for _ in range(2)] == ["it is gone"] * 2
    now_s[0] += rests_s
    assert "RuntimeError: a defect" in str(kept.newest()[0])


class Counted(Reports):
    """Counts instead of making."""

    begun = 0

    def begin(self) -> None:
        self.begun += 1


def answered(
    path: str, method: str = "GET", host: str = HERE, look: Callable[[], Overview] = seen
) -> tuple[str, int, dict[str, str], str]:
    """Its status, and how many reports it began."""
    told: list[tuple[str, dict[str, str]]] = []
    reports, asked = Counted([]), {"PATH_INFO": path, "REQUEST_METHOD": method, "HTTP_HOST": host}
    page = LivePage(INJECTED, SECRET, KeptOverview(look), reports)
    body = b"".join(page(asked, lambda status, headers: told.append((status[:3], dict(headers)))))  # type: ignore[arg-type]
    return told[0][0], reports.begun, told[0][1], body.decode()


HOSTS = ["evil.example:8642", "127.0.0.1.evil.example", "", "[::1]:8642"]
PATHS = ["/", "/now", f"/{SECRET[1:]}/now", f"/{SECRET}", f"//{SECRET}/", f"/{SECRET}\xff/"]


@pytest.mark.parametrize(("path", "host"), [*((f"/{SECRET}/", one) for one in HOSTS), *((one, HERE) for one in PATHS)])
def test_without_the_secret_or_under_another_name_it_answers_nothing(path: str, host: str) -> None:
    for method in ("GET", "POST"):
        status, begun, _, body = answered(path, method, host)
        assert (status, begun, body) == ("404", 0, "Open the address that logtwin report --serve has said.\n")


def test_its_owner_gets_a_page_that_asks_nobody_else_and_reports_when_asked() -> None:
    status, begun, headers, body = answered(f"/{SECRET}/", host="localhost:9000")
    assert (status, begun, INJECTED in body) == ("200", 1, False)
    assert re.match("default-src 'none';.* connect-src 'self';", headers["Content-Security-Policy"])
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert not [name for name in headers if name.startswith("Access-Control")]
    more = (("GET", "now"), ("GET", "report"), ("POST", "report"), ("PUT", "report"))
    found = [answered(f"/{SECRET}/{name}", method)[:2] for method, name in more]
    assert found == [("200", 0), ("404", 0), ("202", 1), ("404", 0)]


def test_that_it_cannot_be_seen_how_it_is_is_said_and_looked_for_again() -> None:
    look = Mock(side_effect=ReplicaError(f"the table is gone {INJECTED}"))
    status, _, _, body = answered(f"/{SECRET}/now", look=look)
    assert (status, INJECTED in body) == ("200", False)
    assert "It cannot be seen how it is." in body
    assert "ReplicaError: the table is gone" in body
    assert "looked at again every 5 s or so" in body


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")])
def test_the_kernel_says_whose_connection_it_is(family: int, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    are_we_root = os.getuid() == 0
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(family) as peer:
        peer.connect((host, listener.getsockname()[1]))
        with listener.accept()[0] as accepted:
            assert peer_is_owner(accepted)
            monkeypatch.setattr(os, "getuid", lambda: 4711)
            assert (peer_is_owner(accepted), peer_is_owner(accepted, or_root=True)) == (False, are_we_root)


def asked(url: str, method: str = "GET") -> str:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as found:  # noqa: S310
        return str(found.read().decode())


@pytest.mark.job
def test_it_follows_the_job_makes_reports_without_spark_and_ends_by_a_signal(tmp_path: Path) -> None:
    """The verb as an operator starts it: its only line is the address."""
    with served(tmp_path) as running:
        assert "Keeps the page" in asked(running.url)
        running.job_says(Phase.WAITING, last_error="its disk is full")
        wait_until(lambda: "The job waits: its disk is full" in asked(f"{running.url}now"), "the job's first state")
        running.job_says(Phase.RUNNING, lag_s=2.0)
        wait_until(lambda: "Replicated, " in asked(f"{running.url}now"), "the job's next state", look_every_s=0.5)
        wait_until(lambda: 'data-report="1"' in asked(f"{running.url}now"), "the report of the first look")
        assert '<p class="summary good">The log is complete.' in asked(f"{running.url}report")
        asked(f"{running.url}report", "POST")  # it ends while it makes one
        code, said = running.ends()
    assert (code, said.count("\n"), "SIGTERM: it ends" in said) == (0, 1, True)
