"""Rules for every page: readable in both themes and languages, on a phone, by keyboard."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from browser.chromium import DESKTOP, PHONE
from browser.scene import small_life
from browser.site import teller
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role
from playwright.sync_api import expect
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from browser.chromium import Browsing
    from browser.scene import Scene
    from browser.site import Site
    from playwright.sync_api import Page, ViewportSize

HERE = Path(__file__).parent
LOOK = (HERE / "look.js").read_text(encoding="utf-8")
FOCUS = (HERE / "focus.js").read_text(encoding="utf-8")
# Its contrast takes most of the time, and the look has it too.
AXE = """async () => {
    const rules = { "color-contrast": { enabled: false } };
    const { violations } = await axe.run({ resultTypes: ["violations"], rules });
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0].target} (${nodes.length})`);
}"""
# What depends on who looks, for each role but the admin's.
BY_ROLE = ("/", "/jobs", "/runs", "/workers", "/queues", "/schedules", "/notifications", "/inputs")
# Each size in each theme, and both in each language.
LOOKS: dict[str, list[tuple[ViewportSize, Literal["light", "dark"]]]] = {
    "en": [(PHONE, "dark"), (DESKTOP, "light")],
    "hi": [(PHONE, "light"), (DESKTOP, "dark")],
}


@pytest.fixture(scope="module")
def scene(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with teller(tmp_path_factory.mktemp("told") / "pipe") as told:
        yield small_life(site, told)


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, which looks for what the accessibility guidelines forbid."""
    spec = find_spec("axe_playwright_python")
    require(spec, "axe-core (the package axe-playwright-python)")
    assert spec is not None
    assert spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def looked_at(page: Page) -> list[str]:
    """Return what axe finds on a page, on a desktop and on a phone."""
    found = []
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        found += page.evaluate(AXE)
    return found


@pytest.mark.parametrize("role", [Role.SUBMITTER, Role.VIEWER])
def test_axe_finds_nothing_for_who_is_no_admin(
    browsing: Browsing, scene: Scene, axe: str, role: Role
) -> None:
    jobs = [f"/jobs/{scene.jobs[state]}" for state in ("failed", "running")]
    window, wrong = browsing.window(role), {}
    window.add_init_script(axe)
    page = window.new_page()
    for path in [*BY_ROLE, f"/workers/{scene.worker}", *jobs]:
        page.goto(scene.site.url + path)
        if found := looked_at(page):
            wrong[path] = found
    assert wrong == {}


def test_axe_finds_nothing_for_a_viewer_of_a_team_or_of_all(
    browsing: Browsing, scene: Scene, axe: str
) -> None:
    site, job = scene.site, f"/jobs/{scene.jobs['failed']}"
    keys, wrong = Keys(site.bed.database, actor="user:root"), {}
    viewers: list[tuple[dict[str, Any], list[str]]] = [
        ({"team": "vision"}, ["/", "/jobs", job, "/teams/vision"]),
        ({"everyone": True}, ["/", "/jobs", job, "/teams", "/events", "/keys"]),
    ]
    for sees, paths in viewers:
        window = browsing.window(role=None)
        window.add_cookies(site.cookies_of(keys.create("eva", Role.VIEWER, **sees)[1]))
        window.add_init_script(axe)
        page = window.new_page()
        for path in paths:
            page.goto(site.url + path)
            expect(page.locator(".menu .owner")).to_have_text("eva")
            if found := looked_at(page):
                wrong[f"{path} {sees}"] = found
    assert wrong == {}


@pytest.mark.parametrize("language", LOOKS)
def test_every_page_is_readable_in_every_look_and_by_keyboard(
    browsing: Browsing, scene: Scene, axe: str, language: str
) -> None:
    window = browsing.window(locale=language)
    looks = [LOOK]
    # What it looks for is the same in every language.
    if language == "en":
        window.add_init_script(axe)
        looks.append(AXE)
    page, wrong = window.new_page(), {}
    for path in ["/login", *scene.pages]:
        page.goto(scene.site.url + path)
        expect(page.locator("html")).to_have_attribute("lang", language)
        for size, scheme in LOOKS[language]:
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            if faults := [fault for look in looks for fault in page.evaluate(look)]:
                wrong[f"{path} {scheme} {size['width']}"] = faults
        # Whoever comes by keyboard sees where they are.
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUS)
        assert found["reached"] > 1
        assert found["wrong"] == [], path
    assert wrong == {}
    browsing.excuse("/jobs/99999: Failed to load resource")


def test_the_look_at_a_page_sees_what_is_wrong(browsing: Browsing) -> None:
    page = browsing.open("/queues")
    page.evaluate(
        """() => document.querySelector("main").innerHTML = `<h1>One</h1><h1>Two</h1>
        <input name="x"><button></button><p id="menu">again</p><span class="badge">ready</span>
        <table></table>`"""
    )
    page.evaluate("document.querySelector('h1').style.color = 'rgb(150 150 150)'")
    page.evaluate("document.querySelector('h1 + h1').style.width = '2000px'")
    told = "; ".join(page.evaluate(LOOK))
    for fault in ("2 x h1", "no label", "no name", "#menu", "colour alone", "no caption"):
        assert fault in told
    assert "contrast 2" in told
    assert "sideways" in told
