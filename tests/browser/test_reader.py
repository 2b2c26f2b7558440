"""A reader's choices: language, theme, keys, and whether a page refreshes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from browser.chromium import PATIENCE
from browser.scene import waits
from forge_schema.model.states import Role
from playwright.sync_api import expect

if TYPE_CHECKING:
    from browser.chromium import Browsing
    from playwright.sync_api import Locator, Page, Request

GROUND = "getComputedStyle(document.documentElement).backgroundColor"
DARK = "rgb(15, 18, 22)"
# There is no way to have a headless browser hide a window, so the page is told that it is hidden.
BECOME = """(state) => {
    Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
    Object.defineProperty(document, "hidden", {value: state === "hidden", configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_hindi_is_chosen_once_and_kept(browsing: Browsing) -> None:
    page = browsing.open("/login", role=None)
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.locator("#menu summary").click()
    page.get_by_label("Language").select_option("hi")
    # Arrow keys go through the choices; none of them is applied on the way.
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("html")).to_have_attribute("lang", "hi")
    page.get_by_label("API कुंजी").fill(browsing.site.keys[Role.ADMIN])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("सारांश")
    page.locator("nav").first.get_by_role("link", name="जॉब").click()
    expect(page).to_have_url(f"{browsing.site.url}/jobs")
    expect(page.locator("html")).to_have_attribute("lang", "hi")
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", "hi")


def test_a_theme_is_the_systems_until_one_is_chosen(browsing: Browsing) -> None:
    page = browsing.open("/queues", color_scheme="dark")
    assert page.evaluate(GROUND) == DARK
    page.emulate_media(color_scheme="light")
    assert page.evaluate(GROUND) != DARK
    page.locator("#menu summary").click()
    page.get_by_label("Theme").select_option("dark")
    with page.expect_navigation():
        page.get_by_role("button", name="Apply").click()
    assert page.evaluate(GROUND) == DARK
    page.goto(f"{browsing.site.url}/jobs")
    assert page.evaluate(GROUND) == DARK


def test_single_keys_can_be_turned_off(browsing: Browsing) -> None:
    page = browsing.open("/queues")
    page.keyboard.press("?")
    page.get_by_label("Single keys act").uncheck()
    page.get_by_role("button", name="Close").click()
    for key in ("g", "j", "?", "/", "p"):
        page.keyboard.press(key)
    expect(page).to_have_url(f"{browsing.site.url}/queues")
    expect(page.locator("#help")).to_be_hidden()
    page.reload()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(page.locator("[data-find]")).to_be_focused()


def test_the_help_tells_every_key_that_leads_to_a_page(browsing: Browsing) -> None:
    for role in (Role.ADMIN, Role.VIEWER):
        page = browsing.open("/queues", role)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        keys, told = page.locator("#help dt").all_inner_texts(), page.locator("#help dd")
        pages = {f"g {link.get_attribute('data-key')}": link.inner_text() for link in links(page)}
        shown = dict(zip(keys, told.all_inner_texts(), strict=True))
        assert {key: text for key, text in shown.items() if key.startswith("g ")} == pages


def links(page: Page) -> list[Locator]:
    return page.locator("nav [data-key]").all()


# A low table, of which one reads further down.
SCROLLED = """() => {
    document.styleSheets[0].insertRule(".table-box { height: 40px; overflow: auto; }");
    document.querySelector("#rows .table-box").scrollTop = 9;
}"""


def test_a_refresh_leaves_the_keyboard_where_it_is(browsing: Browsing) -> None:
    jobs = [waits(browsing.site, name=name) for name in ("first-kept", "second-kept")]
    page = browsing.window().new_page()
    page.clock.install()
    page.goto(f"{browsing.site.url}/queues")
    pause = page.get_by_role("button", name="Pause", exact=True).first
    pause.focus()
    stays(page, pause)
    page.goto(f"{browsing.site.url}/jobs?q=kept")
    link = page.get_by_role("link", name="first-kept")
    link.focus()
    page.evaluate(SCROLLED)
    stays(page, link)
    assert page.locator("#rows .table-box").evaluate("(box) => box.scrollTop") == 9
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{browsing.site.url}/jobs/{jobs[0]}")

    page.locator("main").focus()
    for name in ("Submit again", "Cancel"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_contain_text(name)
    stays(page, page.get_by_role("button", name="Cancel"))
    page.on("dialog", lambda dialog: dialog.accept())
    page.keyboard.press("Enter")
    expect(page.locator("main .badge").first).to_contain_text("cancelled")


def stays(page: Page, stop: Locator) -> None:
    """See that the keyboard is where it was after what it was on has been replaced."""
    stop.evaluate("(el) => { el.old = true; }")
    refreshes(page)
    page.wait_for_function("() => !document.activeElement.old")
    expect(stop).to_be_focused()


def test_a_page_out_of_sight_sends_no_requests(browsing: Browsing) -> None:
    window = browsing.window()
    page = window.new_page()
    asked: list[Request] = []
    page.on("request", lambda request: asked.extend([request]))  # a method of its own it refuses
    page.clock.install()
    page.goto(f"{browsing.site.url}/jobs")

    refreshes(page)
    page.evaluate(BECOME, "hidden")
    assert rested(page, asked)
    with page.expect_request(is_part):
        page.evaluate(BECOME, "visible")
    refreshes(page)

    waits(browsing.site, name="news")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    expect(page.locator("#refresh-said")).to_have_text("Paused")
    assert rested(page, asked)
    # It is so on the next page, too.
    page.goto(f"{browsing.site.url}/queues")
    assert rested(page, asked)
    with page.expect_request(is_part):
        page.keyboard.press("p")
    expect(page.get_by_role("button", name="Live")).to_be_visible()


def is_part(request: Request) -> bool:
    return "part=" in request.url


def refreshes(page: Page) -> None:
    """See that a part is fetched within one period."""
    with page.expect_response(lambda answer: is_part(answer.request), timeout=PATIENCE) as answer:
        page.clock.run_for(3100)
    assert answer.value.ok
    answer.value.finished()


def rested(page: Page, asked: list[Request]) -> bool:
    """Tell whether nothing was asked for in half a minute of the page's time."""
    before = parts(asked)
    page.clock.run_for(30_000)
    # What was asked for before this is known once this is answered.
    page.evaluate("fetch('/health').then((answer) => answer.status)")
    return parts(asked) == before


def parts(asked: list[Request]) -> int:
    return sum(is_part(request) for request in asked)
