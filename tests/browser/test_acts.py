"""Actions on the pages, and their effect on real workers and jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser.scene import waits
from browser.site import teller
from forge_schema.job_filter import parse
from forge_schema.model.states import Role
from forge_schema.read.jobs import Jobs
from playwright.sync_api import Dialog, Locator, Page, expect
from support.waiting import eventually

if TYPE_CHECKING:
    from browser.chromium import Browsing
    from browser.site import Site


@pytest.fixture(scope="module")
def worker(site: Site) -> int:
    made = site.bed.make()
    site.bed.worker()
    return made


def test_a_running_job_is_cancelled(browsing: Browsing, worker: int, tmp_path: Path) -> None:
    bed = browsing.site.bed
    with teller(tmp_path / "pipe") as told:
        job = bed.submit(*told.command(bed.python), name="to-be-cancelled")
        told.say("begun")
        page = browsing.open(f"/jobs/{job}", Role.SUBMITTER)
        expect(state(page)).to_contain_text("running")
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Cancel").click()
        expect(state(page)).to_contain_text("cancelled")
    assert bed.reasons(job) == ["cancelled"]
    assert bed.registry.worker(worker)["status"] != "offline"


def test_a_job_is_tagged_noted_archived_and_deleted(browsing: Browsing, worker: int) -> None:
    bed = browsing.site.bed
    assert bed.registry.worker(worker)["status"] != "offline"
    job = bed.submit("true", name="to-be-kept")
    bed.succeeds(job)
    page = browsing.open(f"/jobs/{job}", Role.SUBMITTER)
    kept = page.locator(".kept")
    page.get_by_text("Tags and note").click()
    page.get_by_label("Tags", exact=True).fill("paper figure-2")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("button", name="Remove the tag figure-2").click()
    expect(kept.get_by_role("link", name="figure-2")).to_have_count(0)
    page.get_by_label("Note").fill("baseline for the paper")
    page.get_by_role("button", name="Save").click()
    expect(kept).to_contain_text("baseline for the paper")
    page.get_by_role("button", name="Archive").click()
    expect(kept).to_contain_text("lists leave it out")
    page.get_by_role("link", name="paper").click()
    expect(page.get_by_text("No job matches this filter.")).to_be_visible()
    page.goto(f"{browsing.site.url}/jobs?q=tag:paper+archived:yes")
    page.get_by_role("link", name="to-be-kept").click()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    assert Jobs(bed.database).ids(parse(f"id:{job}"), count=1) == []


def test_a_worker_is_drained_and_takes_jobs_again(browsing: Browsing, worker: int) -> None:
    bed = browsing.site.bed
    page = browsing.open("/workers")
    page.get_by_role("link", name=f"one-{bed.token}").click()
    expect(state(page)).to_contain_text("idle")
    page.get_by_role("button", name="Drain").click()
    expect(state(page)).to_contain_text("draining")
    job = bed.submit("true", name="left-alone")
    page.get_by_role("button", name="Let it take jobs again").click()
    expect(state(page)).to_contain_text("idle")
    bed.succeeds(job)
    assert bed.registry.worker(worker)["command"] is None


def test_the_command_that_is_shown_starts_a_worker(browsing: Browsing, tmp_path: Path) -> None:
    name = f"pasted-{browsing.site.bed.token}"
    page = browsing.open("/workers")
    page.get_by_role("link", name="Create a worker").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Labels").fill("zone=eu")
    page.get_by_role("button", name="Create, with a token").click()
    shown = page.locator("#token-shell")
    expect(shown).to_contain_text("forge-worker --url")
    pasted = started(shown.inner_text(), tmp_path)
    try:
        page.get_by_role("link", name="To the worker").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(state(page)).to_contain_text("idle")
        expect(page.locator("main")).to_contain_text("zone=eu")
        assert "fgw_" not in page.content()
    finally:
        os.killpg(pasted.pid, signal.SIGTERM)
        pasted.wait(60)
    expect(state(page)).to_contain_text("offline")


def started(command: str, folder: Path) -> subprocess.Popen[bytes]:
    """Run what was pasted into a shell, on a machine that may run jobs as processes."""
    machine = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FORGE_WORKER_DIR": str(folder / "worker"),
        "FORGE_RUNNER": "process",
        "FORGE_ALLOW_PROCESSES": "true",
    }
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, **machine},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def test_a_viewer_is_offered_no_act_and_refused_each(browsing: Browsing, worker: int) -> None:
    site = browsing.site
    job = waits(site, name="looked-at")
    page = browsing.open("/jobs", Role.VIEWER)
    for path in ("/", "/jobs", f"/jobs/{job}", "/workers", f"/workers/{worker}", "/queues"):
        page.goto(site.url + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("main form[method=post]")).to_have_count(0)
        expect(page.locator("main button[name=act]")).to_have_count(0)
    expect(page.locator("nav a[href='/submit']")).to_have_count(0)
    for path in ("/submit", "/workers/new", "/events"):
        answer = page.goto(site.url + path)
        assert answer is not None
        assert answer.status == 403
        expect(page.get_by_role("heading", level=1)).to_have_text("Your role does not allow this")
        browsing.excuse("status of 403")

    # Not even with the token that the viewer's own pages hold.
    forged = page.request
    token = page.evaluate("JSON.parse(document.body.getAttribute('hx-headers'))['X-CSRF-Token']")
    headers = {"Origin": site.url, "X-CSRF-Token": token}
    acts: list[tuple[str, dict[str, str | float | bool]]] = [
        (f"/jobs/{job}/cancel", {}),
        ("/jobs/cancel", {"jobs": str(job)}),
        (f"/workers/{worker}/drain", {}),
        ("/queues/pause", {"name": "default", "paused": "true"}),
    ]
    for path, form in acts:
        assert forged.post(site.url + path, form=form, headers=headers).status == 403, path
    assert site.bed.job(job)["state"] == "ready"
    assert site.bed.registry.worker(worker)["command"] is None


def test_an_act_from_elsewhere_is_refused(browsing: Browsing) -> None:
    site = browsing.site
    job = waits(site, name="aimed-at")
    page = browsing.open("/jobs", Role.SUBMITTER)
    token = page.evaluate("JSON.parse(document.body.getAttribute('hx-headers'))['X-CSRF-Token']")
    act = f"{site.url}/jobs/cancel"
    form: dict[str, str | float | bool] = {"jobs": str(job)}
    elsewhere = {"Origin": "https://elsewhere.invalid", "X-CSRF-Token": token}
    assert page.request.post(act, form=form, headers=elsewhere).status == 403
    assert page.request.post(act, form=form, headers={"Origin": site.url}).status == 403
    assert site.bed.job(job)["state"] == "ready"
    good = {"Origin": site.url, "X-CSRF-Token": token}
    assert page.request.post(act, form=form, headers=good).ok
    eventually(lambda: site.bed.job(job)["state"] == "cancelled")


def state(page: Page) -> Locator:
    """Return the badge of what a page is about."""
    return page.locator("main .badge").first


def test_a_key_is_revoked_only_after_a_question(browsing: Browsing) -> None:
    page = browsing.open("/keys")
    asked: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    rows = page.locator("tbody tr")
    expect(rows.first).to_be_visible()
    count = rows.count()
    page.get_by_role("button", name="Revoke").first.click()
    assert "stop at once" in asked[0]
    page.reload()
    expect(rows).to_have_count(count)


def test_a_filled_form_survives_the_end_of_its_session(browsing: Browsing) -> None:
    page = browsing.open("/submit", Role.SUBMITTER)
    page.get_by_label("Name", exact=True).fill("kept-over-login")
    page.locator("textarea[name=command]").fill("true")
    page.context.clear_cookies()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_label("API key").fill(browsing.site.keys[Role.SUBMITTER])
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{browsing.site.url}/submit")
    expect(page.get_by_label("Name", exact=True)).to_have_value("kept-over-login")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("kept-over-login")
    page.goto(f"{browsing.site.url}/submit")
    expect(page.get_by_label("Name", exact=True)).to_have_value("")


def test_the_focus_stays_where_somebody_acted(browsing: Browsing) -> None:
    browsing.site.bed.submit("true", labels={"zone": "nowhere"})
    page = browsing.open("/queues")
    pause = page.get_by_role("button", name="Pause").first
    pause.focus()
    page.keyboard.press("Enter")
    resume = page.get_by_role("button", name="Resume").first
    expect(resume).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Pause").first).to_be_focused()
    page.locator("#menu summary").click()
    page.get_by_label("Theme").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("#menu summary")).to_be_focused()


def log_in_again(page: Page, key: str) -> None:
    """Enter a key where an act led to the login."""
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")


def test_an_invitation_survives_the_end_of_its_session_and_is_told_once(browsing: Browsing) -> None:
    page = browsing.open("/keys")
    page.get_by_text("Invite people").click()
    page.locator("textarea[name=people]").fill("zoe\nyan")
    page.get_by_label("Role").select_option("viewer")
    page.context.clear_cookies()
    page.get_by_role("button", name="Make the lines").click()
    log_in_again(page, browsing.site.keys[Role.ADMIN])
    expect(page).to_have_url(f"{browsing.site.url}/keys")
    expect(page.locator("textarea[name=people]")).to_have_value("zoe\nyan")
    expect(page.get_by_label("Role")).to_have_value("viewer")
    page.get_by_role("button", name="Make the lines").click()
    expect(page.locator("#made pre")).to_have_count(2)
    # The button that had it is gone.
    expect(page.locator("#made")).to_be_focused()
    page.reload()
    expect(page.locator("#made pre")).to_have_count(0)
    expect(page.locator("textarea[name=people]")).to_have_value("")
    browsing.excuse("401")
