"""A job's log as it is read while it is written: what terminals understand, and where one reads."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser.site import teller
from playwright.sync_api import Page, Route, ViewportSize, expect

if TYPE_CHECKING:
    from browser.chromium import Browsing
    from browser.site import Site

# What a program writes, and what stands there then.
WRITTEN = {
    # gcc, with colours.
    "\x1b[01m\x1b[Kfoo.cu:3:5:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kno such thing": (
        "foo.cu:3:5: error: no such thing"
    ),
    "10%\r\x1b[K20%\x1b[K\r30%\x1b[K": "30%",
    "100%\r\x1b[0K": "",
    # Two bars of tqdm, one below the other.
    "epoch 0%\nbatch 1\x1b[A\repoch 50%": "epoch 50%",
    "batch 2": "batch 2",
    "100%\r\x1b[1Kdone": "done",
    "lost\x1b[1Kkept": "kept",
    "lost\x1b[2Kwhole": "whole",
    "loss 0.5\r\r": "loss 0.5",
    "loss 0.4\r\x1b[0m": "loss 0.4",
    "\x1b]0;a title\x07titled": "titled",
    "\x1b]0;a title\x1b\\ended": "ended",
    "\x1b]0;no end": "0;no end",
    "goes on": "goes on",
}
# More than a page fetches at first.
LINES = [f"line {number} {'x' * 200}" for number in range(600)]
# High enough for all of the page, so that what is out of sight is so within the log.
WIDE: ViewportSize = {"width": 1280, "height": 2400}
NARROW: ViewportSize = {"width": 390, "height": 2400}

LOOK = Path(__file__).with_name("look.js").read_text(encoding="utf-8")
TELLS_ITS_RANK = """
import json, os
rank = os.environ["RANK"]
print("from rank", rank)
with open(os.environ["FORGE_METRICS_FILE"], "a") as file:
    file.write(json.dumps({"loss": 9, "depth": -1}) + "\\n")
    file.write(json.dumps({"step": 7, "loss": int(rank) + 0.25}) + "\\n")
    file.write(json.dumps({"step": 8, "loss": float("nan")}) + "\\n")
"""


@pytest.fixture(scope="module")
def worker(site: Site) -> int:
    made = site.bed.make()
    site.bed.worker()
    return made


@pytest.mark.usefixtures("worker")
def test_a_log_shows_what_a_terminal_would(browsing: Browsing) -> None:
    bed = browsing.site.bed
    text = "".join(f"{line}\n" for line in WRITTEN)
    job = bed.submit(bed.python, "-c", f"import sys; sys.stdout.buffer.write({text.encode()!r})")
    bed.succeeds(job)
    page = browsing.open(f"/jobs/{job}")
    lines = page.locator(".log-line")
    expect(lines).to_have_text(list(WRITTEN.values()))
    expect(lines.locator(".ansi-1.ansi-bold")).to_have_text("error: ")
    page.route("**/log?", in_crumbs)
    with page.expect_response("**/log?") as answer:
        page.reload()
    assert len(answer.value.json()["pieces"]) == len(text)
    expect(lines).to_have_text(list(WRITTEN.values()))


def in_crumbs(route: Route) -> None:
    """Cut the pieces of a log into bytes; they may end anywhere."""
    got = route.fetch().json()
    got["pieces"] = [
        {**piece, "data": base64.b64encode(bytes([byte])).decode()}
        for piece in got["pieces"]
        for byte in base64.b64decode(piece["data"])
    ]
    route.fulfill(json=got)


@pytest.mark.usefixtures("worker")
def test_a_log_is_followed_until_one_reads_elsewhere(browsing: Browsing, tmp_path: Path) -> None:
    bed = browsing.site.bed
    with teller(tmp_path / "pipe") as told:
        job = bed.submit(*told.command(bed.python))
        told.say("\n".join(LINES))
        bed.says(job, LINES[-1])
        page = browsing.open(f"/jobs/{job}", viewport=WIDE)
        follow, last = page.get_by_label("Follow"), page.locator(".log-line").last
        expect(last).to_have_text(LINES[-1])
        expect(last).to_be_in_viewport()
        page.set_viewport_size(NARROW)
        expect(last).to_be_in_viewport()
        for number, leave in enumerate((by_key, by_scroll_bar, by_earlier_lines)):
            leave(page)
            expect(follow).not_to_be_checked()
            told.say(f"more\nmore\nmore\nunseen {number}")
            expect(last).to_have_text(f"unseen {number}")
            expect(last).not_to_be_in_viewport()
            page.locator("#log-lines").press("End")
            expect(follow).to_be_checked()
            told.say(f"seen {number}")
            expect(last).to_have_text(f"seen {number}")
            expect(last).to_be_in_viewport()
        expect(page.locator(".log-line").first).to_have_text(LINES[0])


def by_key(page: Page) -> None:
    page.locator("#log-lines").press("PageUp")


def by_scroll_bar(page: Page) -> None:
    page.locator("#log-lines").evaluate("(log) => { log.scrollTop -= 60; }")


def by_earlier_lines(page: Page) -> None:
    # Where the button is out of sight, a pointer would scroll to it first.
    button = page.get_by_role("button", name="Load earlier lines")
    button.dispatch_event("click")
    expect(button).to_be_hidden()


@pytest.mark.usefixtures("worker")
def test_a_log_is_searched_to_its_beginning(browsing: Browsing) -> None:
    bed = browsing.site.bed
    text = "".join(f"{line}\n" for line in ["ValueError: too early", *LINES])
    job = bed.submit(bed.python, "-c", f"print({text!r}, end='')")
    bed.succeeds(job)
    page = browsing.window().new_page()
    late: list[Route] = []
    page.route(f"**/jobs/{job}/log?*", lambda route: late.append(route), times=1)  # noqa: PLW0108 - not a builtin
    with page.expect_request(f"**/jobs/{job}/log?*"):
        page.goto(f"{browsing.site.url}/jobs/{job}")
    found = page.locator(".log-found")
    # Somebody may be faster than the log.
    page.get_by_placeholder("Search the log").fill("LINE 599 x")
    page.keyboard.press("Enter")
    late[0].continue_()
    expect(found).to_have_text(LINES[599])
    expect(page.locator("#log-state")).to_have_text("1 of 1")
    page.get_by_role("button", name="First error").click()
    expect(found).to_have_text("ValueError: too early")
    expect(found).to_be_in_viewport()
    with page.expect_download() as file:
        page.get_by_role("link", name="Download").click()
    assert file.value.path().read_text() == text


@pytest.mark.usefixtures("worker")
def test_an_attempt_that_begins_later_can_be_chosen(browsing: Browsing) -> None:
    bed = browsing.site.bed
    job = bed.script("import os; print(os.environ['FORGE_ATTEMPT']); raise SystemExit('diverged')")
    bed.ended(job)
    page = browsing.open(f"/jobs/{job}")
    expect(page.get_by_role("heading", name="diverged")).to_be_visible()
    page.get_by_role("button", name="Go to it in the log").click()
    expect(page.locator(".log-found")).to_have_text("diverged")
    log, charts = page.locator("#log-attempt"), page.locator("#charts-attempt")
    expect(log.locator("option")).to_have_text(["all", "1"])
    page.get_by_role("button", name="Retry").click()
    expect(log.locator("option")).to_have_text(["all", "2", "1"])
    expect(charts.locator("option")).to_have_text(["all, joined", "2", "1"])
    log.select_option("2")
    expect(page.locator(".log-line")).to_have_text(["2", "diverged"])
    # Why it failed this time was asked for when it did.
    expect(page.locator("#end-2 .why")).to_be_visible()


@pytest.mark.usefixtures("worker")
def test_each_rank_has_its_log_and_its_curves(browsing: Browsing) -> None:
    bed = browsing.site.bed
    bed.make("two")
    bed.worker("two")
    job = bed.script(TELLS_ITS_RANK, nodes=2)
    bed.succeeds(job)
    page = browsing.open(f"/jobs/{job}", viewport=WIDE)
    loss = page.locator("#charts-place figure", has_text="loss")
    expect(page.locator(".attempts tbody th")).to_have_text(["1 rank 0", "1 rank 1"])
    expect(page.locator(".log-line")).to_have_text(["from rank 0"])
    # It diverged, and what it had before can be read point by point.
    expect(loss.locator(".value")).to_have_text("NaN")
    loss.locator(".chart-place").press("ArrowRight")
    expect(loss.locator(".readout")).to_have_text("step 7loss0.25")
    expect(page.locator("#charts-said")).to_have_text("loss: step 7, loss 0.25")
    # Lines without a step are left out, unless a metric has no others.
    page.locator("#charts-log").check()
    expect(page.locator("#charts-place figure", has_text="depth").locator(".note")).to_have_text(
        "written by the job, by time: it has no steps, not logarithmic: no value is above 0"
    )
    page.locator("#log-rank").select_option("1")
    expect(page.locator(".log-line")).to_have_text(["from rank 1"])
    page.locator("#charts-rank").select_option("1")
    loss.locator(".chart-place").press("ArrowRight")
    expect(loss.locator(".readout")).to_have_text("step 7loss1.25")
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        assert page.evaluate(LOOK) == []
