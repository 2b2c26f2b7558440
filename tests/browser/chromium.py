"""Debian's Chromium under a test's control, with the errors on the pages that it shows."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forge_schema.model.states import Role
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browser.site import Site
    from playwright.sync_api import ConsoleMessage, Error

# Milliseconds: generous, for a busy machine.
PATIENCE = 60_000
# Chromium gives up what it was loading when an interface comes or goes, as with each network that a
# test of gangs makes beside this one; it then loads the page again.
INTERFACES_CHANGED = "net::ERR_NETWORK_CHANGED"
# What only Chromium writes to the console.
UNSAID = frozenset({"status of 401", "ERR_FAILED"})
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser until the block ends; while it runs, this thread has an event loop.

    Raises:
        pytest.skip.Exception: there is none, and this is somebody's own machine.
    """
    # The same engine without a window's parts draws a page in a quarter of the CPU time.
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    require(path, "Chromium (Debian's package chromium-headless-shell)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


@dataclass
class Browsing:
    """What one test sees of a site: every window is watched, and a complaint fails the test."""

    browser: Browser
    site: Site
    folder: Path
    traced: bool = False
    contexts: list[BrowserContext] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str = "/", role: Role | None = Role.ADMIN, **options: Any) -> Page:  # noqa: ANN401  playwright's own
        """Open a page in a browser of its own, logged in unless `role` is None."""
        page = self.window(role, **options).new_page()
        page.goto(self.site.url + path)
        return page

    def window(self, role: Role | None = Role.ADMIN, **options: Any) -> BrowserContext:  # noqa: ANN401  as above
        """Open a browser without a page; `options` are those of playwright's contexts."""
        context = self.browser.new_context(**{"viewport": DESKTOP, "locale": "en", **options})
        context.set_default_timeout(PATIENCE)
        if self.traced:
            context.tracing.start(snapshots=True)
        context.on("console", self._said)
        context.on("page", lambda page: page.on("pageerror", self._broke))
        if role is not None:
            context.add_cookies(self.site.cookies(role))
        self.contexts.append(context)
        return context

    def excuse(self, text: str) -> None:
        """Remove a complaint that the test provoked, which must exist."""
        silent = self.browser.browser_type.name == "firefox" and text in UNSAID
        assert silent or any(text in one for one in self.complaints), self.complaints
        self.complaints = [one for one in self.complaints if text not in one]

    def keep(self) -> None:
        """Leave a screenshot and, if traced, a trace of every window in the test's folder."""
        for i, context in enumerate(self.contexts):
            if self.traced:
                context.tracing.stop(path=self.folder / f"trace-{i}.zip")
            for j, page in enumerate(context.pages):
                page.screenshot(path=self.folder / f"page-{i}-{j}.png")

    def close(self) -> None:
        for context in self.contexts:
            context.close()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and INTERFACES_CHANGED not in message.text:
            self.complaints.append(f"{message.page and message.page.url}: {message.text}")

    def _broke(self, error: Error) -> None:
        self.complaints.append(f"script: {error.stack or error.message}")
