"""The main flows, in both browsers: from the login to a job's end, by pointer and by keyboard."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from browser.scene import waits
from browser.site import teller
from forge_schema.model.states import Role
from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from browser.chromium import Browsing
    from playwright.sync_api import Route

NEEDS = {"CPUs": "0.5", "Memory, GiB": "0.25", "Disk, GiB": "0.5"}
BULK = ("bulk-one", "bulk-two", "bulk-three")


pytestmark = pytest.mark.parametrize(
    "browser", ["chromium", "firefox"], indirect=True, scope="module"
)


def test_a_key_leads_to_the_page_that_was_wanted(browsing: Browsing) -> None:
    page = browsing.open("/queues?x=1", role=None)
    field = page.get_by_label("API key")
    expect(field).to_be_focused()
    field.fill("fgk_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("not a valid API key")
    browsing.excuse("status of 401")
    page.get_by_label("API key").fill(browsing.site.keys[Role.ADMIN])
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{browsing.site.url}/queues?x=1")

    page.locator("#menu summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{browsing.site.url}/login")
    page.goto(f"{browsing.site.url}/queues")
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_job_is_watched_from_its_form_to_its_end(browsing: Browsing, tmp_path: Path) -> None:
    bed = browsing.site.bed
    with teller(tmp_path / "pipe") as told:
        page = browsing.open("/submit", Role.SUBMITTER)
        page.get_by_role("textbox", name="Command").fill(shlex.join(told.command(bed.python)))
        page.get_by_label("Name", exact=True).fill("watched")
        page.locator("#rest > summary").click()
        for label, amount in NEEDS.items():
            page.get_by_label(label, exact=True).fill(amount)
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page).to_have_url(re.compile(r"/jobs/\d+$"))
        expect(page.get_by_role("heading", level=1)).to_contain_text("watched")
        page.evaluate("window.stayed = true")
        state = page.locator(".standing .badge")
        expect(state).to_contain_text("queued")
        expect(page.locator(".why")).to_contain_text("worker")

        bed.worker()
        expect(state).to_contain_text("running")
        run = page.locator(".attempts tbody tr")
        expect(run).to_contain_text(f"one-{bed.token}")
        expect(run.locator("rect.bar-running")).to_have_count(1)
        said, lines = [], page.locator(".log-line")
        for epoch in range(1, 4):
            said.append(f"epoch {epoch} loss {1 / epoch:.2f}")
            told.say(said[-1])
            expect(lines).to_have_text(said)
        told.end()
    expect(state).to_contain_text("succeeded")
    expect(run).to_contain_text("succeeded")
    expect(lines).to_have_text(said)
    assert page.evaluate("window.stayed") is True
    page.reload()
    expect(lines).to_have_text(said)


def test_keys_lead_to_pages_and_to_the_filter(browsing: Browsing) -> None:
    page = browsing.open("/queues")
    for key, path in (("j", "/jobs"), ("r", "/reports"), ("o", "/"), ("j", "/jobs")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(browsing.site.url + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        # What has nothing that refreshes does not say that it is live.
        expect(page.locator("#refresh")).to_be_visible(visible=path != "/reports")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.get_by_label("Filter", exact=True)).to_be_focused()
    # A letter in a field is a letter.
    page.keyboard.type("g?p/")
    expect(page.get_by_label("Filter", exact=True)).to_have_value("g?p/")
    expect(page.get_by_role("button", name="Live")).to_be_visible()


def test_all_jobs_that_a_filter_finds_are_cancelled(browsing: Browsing) -> None:
    site = browsing.site
    ids = [waits(site, name=name) for name in BULK]
    other = waits(site, name="spared")
    page = browsing.open("/jobs", Role.SUBMITTER)
    page.keyboard.press("/")
    page.keyboard.type("bulk-")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(len(BULK))
    page.get_by_label("Select this page").check()
    expect(page.locator("#selected")).to_contain_text("3 selected")
    page.get_by_role("button", name="Cancel…", exact=True).click()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.locator("main").get_by_role("status").first).to_contain_text("3 jobs cancelled")
    expect(page.locator("tbody .badge")).to_have_text(["⊘ cancelled"] * len(BULK))
    assert {site.bed.job(job)["state"] for job in ids} == {"cancelled"}
    assert site.bed.job(other)["state"] == "ready"


def test_an_act_without_an_answer_says_so_until_it_is_read(browsing: Browsing) -> None:
    job = browsing.site.bed.submit("true", name="unanswered", labels={"zone": "nowhere"})
    page = browsing.open(f"/jobs/{job}", Role.SUBMITTER)
    page.clock.install()
    page.on("dialog", lambda dialog: dialog.accept())
    page.route("**/cancel*", lambda route: route.abort())
    refreshes: list[Route] = []
    page.route("**/*part=*", lambda route: refreshes.append(route))  # noqa: PLW0108  not a builtin
    with page.expect_request("**/*part=*"):
        page.clock.fast_forward(7_000)
    page.get_by_role("button", name="Cancel").click()
    refusal = page.locator("[data-refusal]", has_text="No answer from the server")
    expect(refusal).to_be_visible()
    # A refresh from before it, and the next one, leave it alone.
    page.unroute("**/*part=*")
    with page.expect_response("**/*part=*"):
        for refresh in refreshes:
            refresh.continue_()
    page.clock.fast_forward(7_000)
    expect(refusal).to_be_visible()
    refusal.get_by_role("button", name="Close").click()
    expect(refusal).to_have_count(0)
    page.unroute("**/cancel*")
    # The browser's, and htmx's, own words about it.
    for words in ("htmx:", "ERR_FAILED"):
        browsing.excuse(words)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("main .badge").first).to_contain_text("cancelled")


def test_a_selection_can_be_used_after_going_back(browsing: Browsing) -> None:
    bed = browsing.site.bed
    for name in ("back-one", "back-two"):
        bed.submit("true", name=name, labels={"zone": "nowhere"})
    page = browsing.open("/jobs?q=name:back-*", Role.SUBMITTER)
    boxes = page.locator('input[name="job"][form="bulk"]')
    expect(boxes).to_have_count(2)
    for box in boxes.all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile("/compare"))
    page.go_back()
    expect(boxes.first).to_be_checked()
    expect(page.get_by_role("button", name="Compare")).to_be_enabled()
