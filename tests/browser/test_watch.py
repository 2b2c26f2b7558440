"""A job from the form to its end, on a page that is never reloaded."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from browser.site import teller
from forge_schema.model.states import Role
from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from browser.chromium import Browsing

NEEDS = {"CPUs": "0.5", "Memory, GiB": "0.25", "Disk, GiB": "0.5"}


def test_a_job_is_watched_from_its_form_to_its_end(browsing: Browsing, tmp_path: Path) -> None:
    bed = browsing.site.bed
    with teller(tmp_path / "pipe") as told:
        page = browsing.open("/submit", Role.SUBMITTER)
        page.get_by_role("textbox", name="Command").fill(shlex.join(told.command(bed.python)))
        page.get_by_label("Name", exact=True).fill("watched")
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
