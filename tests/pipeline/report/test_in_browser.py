"""The page as a browser shows it: Chromium opens it, and what is drawn is looked at."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from pipeline.monitoring.progress import Phase
from pipeline.report.drawing.plotting import PALETTE
from pipeline.report.page import page
from tests.patience import wait_until
from tests.pipeline.report.samples import INJECTED, whole
from tests.pipeline.report.served import served

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
MARKS = {
    "coverage-0": {"bars": 5, "points": 1},
    "coverage-1": {"bars": 5, "points": 1},
    "throughput-0": {"lines": 4},
    "lag-0": {"lines": 4},
    "topics-0": {"bars": 4},
    "consumers-0": {"bars": 2},
    "transactions-0": {"bars": 2},
    "delays-0": {"bars": 4},
}
"""What has to be drawn of `samples.whole`, plot by plot."""
SELECTORS = {"bars": ".barlayer .point path", "points": ".scatterlayer .point", "lines": ".scatterlayer .js-line"}


class Opened:
    """A page in the browser, and what it said and asked for since it was opened."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.tab: Page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(url)

    def boxes(self, plot: str, selector: str, colour: str | None = None) -> list[dict[str, float]]:
        """Where marks are, in pixels of the page; those that are filled in `colour`, if given."""
        found: list[dict[str, float]] = self.tab.evaluate(
            """([plot, selector, colour]) => [...document.querySelectorAll(`#${plot} ${selector}`)]
              .filter((mark) => colour === null || getComputedStyle(mark).fill === colour)
              .map((mark) => mark.getBoundingClientRect())
              .map(({left, right, top, bottom, width, height}) => ({left, right, top, bottom, width, height}))""",
            [plot, selector, None if colour is None else _rgb(colour)],
        )
        return found

    def width(self, plot: str) -> float:
        """Of what is drawn, in pixels: it follows the screen a moment later."""
        return self.boxes(plot, ".main-svg")[0]["width"]

    def style(self, selector: str, name: str) -> str:
        found: str = self.tab.evaluate(
            "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]", [selector, name]
        )
        return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One Chromium, with a profile of its own, which is gone afterwards."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no chromium on the PATH: make browser-setup, or install Debian's package chromium")
    home = tmp_path_factory.mktemp("browser")
    with sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            home / "profile",
            executable_path=found,
            headless=True,
            args=ARGUMENTS,
            env={"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)},
            viewport={"width": 1200, "height": 900},
            color_scheme="light",
        )
        try:
            yield context
        finally:
            context.close()


@pytest.fixture(scope="module")
def opened(browser: BrowserContext, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """`samples.whole` on a light screen of 1200 pixels; a test that changes that changes it back."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(whole()), encoding="utf-8")
    return Opened(browser, file.as_uri())


@pytest.mark.parametrize("plot", MARKS)
def test_every_plot_has_its_marks(opened: Opened, plot: str) -> None:
    drawn = {kind: len(opened.boxes(plot, selector)) for kind, selector in SELECTORS.items()}
    assert {kind: drawn[kind] for kind in MARKS[plot]} == MARKS[plot]
    (place,) = opened.boxes(plot, ".svg-container")
    assert place["width"] > 600
    for kind in MARKS[plot]:
        for box in opened.boxes(plot, SELECTORS[kind]):
            assert place["left"] - 1 <= box["left"] <= box["right"] <= place["right"] + 1
            assert place["top"] - 1 <= box["top"] <= box["bottom"] <= place["bottom"] + 1


@pytest.mark.parametrize("plot", ["coverage-0", "coverage-1"])
def test_the_missing_quarter_is_red_and_in_its_place(opened: Opened, plot: str) -> None:
    # messages lie at equal distances, so a quarter of the offsets is a quarter of the time
    whole_log = opened.boxes(plot, SELECTORS["bars"], PALETTE["whole"][0])[0]
    (missing,) = opened.boxes(plot, SELECTORS["bars"], PALETTE["bad"][0])
    (mark,) = opened.boxes(plot, SELECTORS["points"], PALETTE["bad"][0])
    at = [whole_log["left"] + share * whole_log["width"] for share in (0.25, 0.375, 0.5)]
    assert [missing["left"], (mark["left"] + mark["right"]) / 2, missing["right"]] == pytest.approx(at, abs=3)
    assert (missing["top"], missing["height"]) == pytest.approx((whole_log["top"], whole_log["height"]), abs=3)
    assert mark["top"] >= missing["bottom"] - 1


def test_it_is_silent_and_asks_nobody(opened: Opened) -> None:
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len([url for url in opened.asked if url.startswith("file:")]) == 1


def test_what_comes_from_data_is_shown_and_does_not_run(opened: Opened) -> None:
    assert opened.tab.evaluate("typeof window.injected") == "undefined"
    labels = opened.tab.evaluate("[...document.querySelectorAll('#topics-0 text')].map((one) => one.textContent)")
    assert any(label.startswith("<script>") for label in labels)
    assert opened.tab.locator("td", has_text=INJECTED).count() >= 2


def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    opened.tab.set_viewport_size({"width": 390, "height": 844})
    try:
        wait_until(lambda: opened.width("coverage-0") < 390, "a narrow plot")
        opened.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert opened.tab.evaluate("document.documentElement.scrollWidth") == 390
        (bar,) = opened.boxes("coverage-0", SELECTORS["bars"], PALETTE["bad"][0])
        assert 60 < bar["width"] < 100
        assert opened.style("thead", "position") == "absolute"
    finally:
        opened.tab.set_viewport_size({"width": 1200, "height": 900})
        wait_until(lambda: opened.width("coverage-0") > 600, "a wide plot")


def test_on_a_dark_screen_page_and_plots_are_dark(opened: Opened) -> None:
    opened.tab.emulate_media(color_scheme="dark")
    try:
        late = _rgb(PALETTE["late"][1])
        wait_until(lambda: opened.style("#delays-0 .point path", "fill") == late, "the last plot in dark colours")
        assert opened.style("body", "backgroundColor") == _rgb(PALETTE["page"][1])
        assert opened.style("section", "backgroundColor") == _rgb(PALETTE["card"][1])
        assert opened.boxes("coverage-0", SELECTORS["bars"], PALETTE["bad"][0]) == []
        assert len(opened.boxes("coverage-0", SELECTORS["bars"], PALETTE["bad"][1])) == 1
        assert opened.style("#coverage-0 .annotation-text", "fill") == _rgb(PALETTE["ink"][1])
    finally:
        opened.tab.emulate_media(color_scheme="light")


def test_a_page_that_stays_open_follows_the_job(browser: BrowserContext, tmp_path: Path) -> None:
    """Without a reload, asking nobody else; by keyboard; in the dark; and it says when it is out of date."""
    with served(tmp_path) as running:
        running.job_says(Phase.WAITING, last_error=INJECTED)
        opened = Opened(browser, running.url)
        tab, state = opened.tab, opened.tab.locator("#now .log p").first
        wait_until(lambda: state.inner_text() == f"The job waits: {INJECTED}", "how the job is")
        wait_until(lambda: tab.locator("#report .js-plotly-plot").count() == 4, "the plots of the first report")
        tab.evaluate("document.querySelector('details summary').focus()")
        tab.keyboard.press("Enter")
        running.job_says(Phase.RUNNING, lag_s=2.0)
        wait_until(lambda: state.inner_text().startswith("Replicated, "), "how the job is now")
        assert tab.evaluate("document.activeElement.parentElement.open")  # what is unfolded and focused stays so
        tab.focus("#anew")
        tab.keyboard.press("Enter")
        wait_until(lambda: tab.get_attribute("#now", "data-report") == "2", "a second report")
        wait_until(lambda: tab.locator("#report .js-plotly-plot").count() == 4, "its plots")
        assert tab.evaluate("document.activeElement.id") == "anew"
        tab.emulate_media(color_scheme="dark")
        wait_until(lambda: opened.boxes("coverage-0", SELECTORS["bars"], PALETTE["whole"][1]) != [], "dark plots")
        assert opened.style("body", "backgroundColor") == _rgb(PALETTE["page"][1])
        assert [url for url in opened.asked if not url.startswith((running.url, "data:", "blob:"))] == []
        assert (opened.said, opened.asked.count(running.url)) == ([], 1)
        running.ends()
        wait_until(lambda: tab.is_visible("#lost"), "that nobody answers any more")
        assert "What stands here is of then." in tab.inner_text("#lost")
        tab.close()


def _rgb(colour: str) -> str:
    """``#cf2f35`` as a computed style has it."""
    red, green, blue = (int(part, 16) for part in re.findall("..", colour[1:]))
    return f"rgb({red}, {green}, {blue})"
