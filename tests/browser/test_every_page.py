"""Rules for every page: readable in both themes and languages, on a phone, by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from browser.chromium import DESKTOP, PHONE
from browser.scene import small_life
from browser.site import teller
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from browser.chromium import Browsing
    from browser.scene import Scene
    from browser.site import Site
    from playwright.sync_api import ViewportSize

HERE = Path(__file__).parent
LOOK = (HERE / "look.js").read_text(encoding="utf-8")
FOCUS = (HERE / "focus.js").read_text(encoding="utf-8")
# Each size in each theme, and both in each language.
LOOKS: dict[str, list[tuple[ViewportSize, Literal["light", "dark"]]]] = {
    "en": [(PHONE, "dark"), (DESKTOP, "light")],
    "hi": [(PHONE, "light"), (DESKTOP, "dark")],
}


@pytest.fixture(scope="module")
def scene(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with teller(tmp_path_factory.mktemp("told") / "pipe") as told:
        yield small_life(site, told)


@pytest.mark.parametrize("language", LOOKS)
def test_every_page_is_readable_in_every_look_and_by_keyboard(
    browsing: Browsing, scene: Scene, language: str
) -> None:
    window = browsing.window(locale=language)
    page, wrong = window.new_page(), {}
    for path in ["/login", *scene.pages]:
        page.goto(scene.site.url + path)
        expect(page.locator("html")).to_have_attribute("lang", language)
        for size, scheme in LOOKS[language]:
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            if faults := page.evaluate(LOOK):
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
