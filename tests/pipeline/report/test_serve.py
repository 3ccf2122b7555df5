"""``logtwin report --serve``: for its owner alone, current, and idle while nobody looks."""

from __future__ import annotations

import os
import re
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError

import pytest

from pipeline.inspect.overview import Overview
from pipeline.monitoring.progress import Phase, Progress
from pipeline.report.drawing.now import ReportState, headlines_now, summary_now
from pipeline.report.drawing.wording import Level
from pipeline.report.serve import KeptOverview, LivePage, Reports
from pipeline.system.peers import peer_is_owner
from sources.errors import ReplicaError
from tests.patience import wait_until
from tests.pipeline.report.samples import BROKER, INJECTED, NOW
from tests.pipeline.report.served import Served, served

SECRET = "s" * 43
HERE = "127.0.0.1:8642"


def seen(*logs: Progress) -> Overview:
    return Overview(at=NOW, logs=logs, tables=(), jobs=(), upkeep=None, upkeep_every_s=3600)


def log(phase: Phase | None = Phase.RUNNING, hours_ago: int = 0, **facts: object) -> Progress:
    at = (NOW - timedelta(hours=hours_ago)).isoformat()
    given = {"running": phase in (Phase.RUNNING, Phase.WAITING), "updated_at": at, **facts}
    return replace(Progress(log_id=BROKER, role="slave", master="broker-a:10911", phase=phase), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "level", "said"),
    [
        (log(lag_s=4.0), Level.GOOD, "Replicated, 4 s behind its master."),
        (log(lag_s=7200.0), Level.STALE, "It is 2 h behind its master."),
        (log(master_error="no answer"), Level.STALE, "Replicated."),
        (log(Phase.WAITING, last_error="the master is away"), Level.STALE, "The job waits: the master is away"),
        (log(Phase.FAILED, last_error="a gap"), Level.BAD, "The job failed .* ago.: a gap"),
        (log(Phase.RUNNING, 3, running=False), Level.STALE, "Nobody replicates it: the job was last seen .*3 h ago"),
        (log(Phase.DONE), Level.GOOD, "The job came to the end of the log"),
        (log(Phase.DONE, 3), Level.STALE, "The job came to the end of the log .*3 h ago"),
        (log(None), Level.UNSEEN, "Nothing of it is replicated yet."),
    ],
)
def test_each_state_has_its_words_and_its_alarm(one: Progress, level: Level, said: str) -> None:
    (told,) = headlines_now(seen(one))
    assert (told.level, summary_now(seen(one), [told])[0]) == (level, level)
    assert re.match(said, told.sentence)


class Counted:
    """KeptOverview that are counted, at a clock that stands unless it is moved."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.count, self.now_s, self._takes_s = 0, 0.0, takes_s
        self.error: Exception | None = None

    def clock(self) -> float:
        return self.now_s

    def look(self) -> Overview:
        self.count += 1
        self.now_s += self._takes_s
        if self.error is not None:
            raise self.error
        return seen(log())


@pytest.mark.parametrize(("takes_s", "rests_s"), [(0.0, 5.0), (4.0, 12.0)])
def test_it_looks_when_asked_and_not_again_for_all_who_ask_soon(takes_s: float, rests_s: float) -> None:
    counted = Counted(takes_s)
    looks = KeptOverview(counted.look, counted.clock)
    assert counted.count == 0
    first = looks.newest()
    counted.now_s += rests_s - 0.1
    assert looks.newest() is first
    counted.now_s += 0.2
    counted.error = ReplicaError("it is gone")
    assert (str(looks.newest()[0]), looks.newest(), counted.count) == ("it is gone", looks.newest(), 2)
    counted.now_s += 99
    counted.error = RuntimeError("a defect")
    assert "RuntimeError: a defect" in str(looks.newest()[0])


class Made(Reports):
    """Counts instead of making."""

    begun = 0

    def begin(self) -> None:
        self.begun += 1


def answer(page: LivePage, path: str, method: str = "GET", host: str = HERE) -> tuple[str, dict[str, str], str]:
    told: list[tuple[str, dict[str, str]]] = []
    environment = {"PATH_INFO": path, "REQUEST_METHOD": method, "HTTP_HOST": host}
    body = b"".join(page(environment, lambda status, headers: told.append((status[:3], dict(headers)))))  # type: ignore[arg-type]
    return *told[0], body.decode()


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def page(counted: Counted) -> LivePage:
    return LivePage(INJECTED, SECRET, KeptOverview(counted.look, counted.clock), Made([]))


@pytest.mark.parametrize("host", ["evil.example:8642", "127.0.0.1.evil.example", "", "[::1]:8642"])
@pytest.mark.parametrize("path", ["", "now"])
def test_under_the_name_of_another_host_it_answers_nothing(
    page: LivePage, counted: Counted, host: str, path: str
) -> None:
    status, _, body = answer(page, f"/{SECRET}/{path}", host=host)
    assert (status, body, counted.count) == ("404", "Open the address that logtwin report --serve has said.\n", 0)


@pytest.mark.parametrize("path", ["/", "/now", f"/{SECRET[1:]}/now", f"/{SECRET}", f"//{SECRET}/", f"/{SECRET}\xff/"])
def test_without_the_secret_it_answers_nothing(page: LivePage, counted: Counted, path: str) -> None:
    assert answer(page, path)[0] == "404"
    assert answer(page, path, "POST")[0] == "404"
    assert counted.count == 0


@pytest.mark.parametrize("host", [HERE, "localhost:9000", "localhost"])
def test_its_owner_gets_a_page_that_asks_nobody_else(page: LivePage, counted: Counted, host: str) -> None:
    status, headers, body = answer(page, f"/{SECRET}/", host=host)
    assert (status, INJECTED in body, counted.count) == ("200", False, 0)
    assert "connect-src 'self';" in headers["Content-Security-Policy"]
    assert headers["Content-Security-Policy"].startswith("default-src 'none';")
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert not [name for name in headers if name.startswith("Access-Control")]


def test_a_report_is_begun_when_somebody_looks_or_asks(page: LivePage) -> None:
    made = page._reports
    assert isinstance(made, Made)
    steps = (("GET", "now"), ("GET", "report"), ("GET", ""), ("POST", "report"), ("PUT", "report"))
    found = [(answer(page, f"/{SECRET}/{path}", method)[0], made.begun) for method, path in steps]
    assert found == [("200", 0), ("404", 0), ("200", 1), ("202", 2), ("404", 2)]


def test_a_report_says_when_it_was_made_and_what_comes_after_it() -> None:
    made = ReportState(number=1, since=NOW - timedelta(hours=2))
    assert made.said(NOW) == "What stands below was found 2 h ago."
    assert replace(made, begun_at=NOW).said(NOW).endswith(" A new report is being made, for 0 s so far.")
    assert ReportState(error="no replica").said(NOW) == "The report could not be made: no replica"


def test_the_kernel_says_whose_connection_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    are_we_root = os.getuid() == 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
            with socket.socket(family) as peer:
                peer.connect((host, listener.getsockname()[1]))
                accepted, _ = listener.accept()
                with accepted:
                    assert peer_is_owner(accepted)
                    with monkeypatch.context() as other:
                        other.setattr(os, "getuid", lambda: 4711)
                        assert not peer_is_owner(accepted)
                        assert peer_is_owner(accepted, or_root=True) == are_we_root


def asked(url: str, method: str = "GET") -> str:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as found:  # noqa: S310
        return str(found.read().decode())


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


@pytest.mark.job
def test_it_follows_the_job_makes_reports_without_spark_and_ends_by_a_signal(running: Served) -> None:
    """The verb as an operator starts it: its only line is the address."""
    assert "Keeps the page" in asked(running.url)
    running.job_says(Phase.WAITING, last_error="its disk is full")
    wait_until(lambda: "The job waits: its disk is full" in asked(f"{running.url}now"), "the job's first state")
    running.job_says(Phase.RUNNING, lag_s=2.0)
    wait_until(lambda: "Replicated, " in asked(f"{running.url}now"), "the job's next state", look_every_s=0.5)
    wait_until(lambda: 'data-report="1"' in asked(f"{running.url}now"), "the report of the first look")
    assert '<p class="summary good">The log is complete.' in asked(f"{running.url}report")
    with pytest.raises(HTTPError, match="404"):
        asked(running.url.rsplit("/", 2)[0] + "/")
    asked(f"{running.url}report", "POST")  # it ends while it makes one
    code, said = running.ends()
    assert (code, said.count("\n"), "SIGTERM: it ends" in said) == (0, 1, True)
