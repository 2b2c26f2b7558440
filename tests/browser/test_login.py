"""Who may log in, and what a page may load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.states import Role
from playwright.sync_api import expect

if TYPE_CHECKING:
    from browser.chromium import Browsing


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


def test_what_a_page_did_not_bring_is_neither_run_nor_drawn(browsing: Browsing) -> None:
    page = browsing.open("/queues")
    page.evaluate(
        """() => {
            const inline = {script: "window.ran = 1", style: "h1 {color: red}"};
            for (const [name, text] of Object.entries(inline)) {
                const made = document.createElement(name);
                made.textContent = text;
                document.head.append(made);
            }
            document.querySelector("main").innerHTML += "<img src='https://elsewhere.invalid/x'>";
        }"""
    )
    assert page.evaluate("window.ran") is None
    for refused in ("script-src", "style-src", "img-src"):
        expect_complaint(browsing, refused)
        browsing.excuse(refused)


def expect_complaint(browsing: Browsing, text: str) -> None:
    """Wait for what a console said."""
    page = browsing.contexts[0].pages[0]
    if not any(text in one for one in browsing.complaints):
        page.wait_for_event("console", lambda said: text in said.text)
