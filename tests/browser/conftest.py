"""A browser and a site for the tests of a module; windows of its own for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from browser.chromium import Browsing
    from browser.site import Site
    from playwright.sync_api import Browser
    from support.database.postgres import Server


# Not for the whole session: other tests want a thread without an event loop.
@pytest.fixture(scope="module")
def browser(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """Chromium, or the one that a module names as its parameter."""
    from browser.chromium import chromium  # noqa: PLC0415  only where a browser is wanted
    from browser.firefox import firefox  # noqa: PLC0415  as above

    wanted = getattr(request, "param", "chromium")
    folder = tmp_path_factory.mktemp("browser")
    with chromium() if wanted == "chromium" else firefox(folder) as running:
        yield running


@pytest.fixture(scope="module")
def site(
    browser: Browser,
    postgres_server: Server,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A server without workers, on a database of the browser's own; `site.bed` starts them."""
    from browser.site import running_site  # noqa: PLC0415  as above

    assert browser.is_connected()
    with (
        postgres_server.database(template_database) as url,
        running_site(tmp_path_factory.mktemp("site"), url) as running,
    ):
        yield running


@pytest.fixture
def browsing(
    browser: Browser, site: Site, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Browsing]:
    """Windows on the site: `browsing.open("/jobs", Role.VIEWER)`."""
    from browser.chromium import Browsing  # noqa: PLC0415  as above

    # A fifth of the browser's work, so only for a test that has failed already.
    again: bool = request.config.getoption("lf", default=False)
    made = Browsing(browser, site, tmp_path, traced=again)
    yield made
    made.close()
    assert made.complaints == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a failed test saw, and say where."""
    report = yield
    made = getattr(item, "funcargs", {}).get("browsing")
    if report.failed and call.when == "call" and made is not None:
        made.keep()
        report.sections.append(("browser", f"what it saw is in {made.folder}"))
    return report
