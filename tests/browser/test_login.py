"""Who may log in, and what a page may load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from browser.chromium import Browsing


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
