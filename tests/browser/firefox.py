"""Debian's Firefox under a test's control, by the same library as Chromium."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from browser.chromium import PATIENCE
from playwright.sync_api import Browser, expect, sync_playwright
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

# Together they spare a sixth of what a page costs.
FRUGAL: dict[str, str | float | bool] = {
    "dom.ipc.processPrelaunch.enabled": False,
    "fission.autostart": False,
    "layout.frame_rate": 10,
}
RELAY = Path(__file__).with_name("relay.py")


@contextmanager
def firefox(folder: Path) -> Iterator[Browser]:
    """Run a browser until the block ends; while it runs, this thread has an event loop.

    Raises:
        pytest.skip.Exception: there is none, and this is somebody's own machine.
    """
    require(shutil.which("firefox-esr"), "Firefox (Debian's package firefox-esr)")
    program = folder / "firefox"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{RELAY}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    with sync_playwright() as playwright:
        browser = playwright.firefox.launch(
            channel="moz-firefox", executable_path=program, firefox_user_prefs=FRUGAL
        )
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()
