"""Runs side by side: their curves by keyboard, in the address, and against a baseline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from browser.chromium import Browsing
    from playwright.sync_api import Route

LOOK = Path(__file__).with_name("look.js").read_text(encoding="utf-8")
LEARNS = """
import json, os, sys
with open(os.environ["FORGE_METRICS_FILE"], "a") as file:
    for step in range(10):
        file.write(json.dumps({"step": step, "loss": float(sys.argv[1]) / (1 + step)}) + "\\n")
"""

# How much moved by itself since the page was opened; above 0.1 it disturbs.
SHIFT = """() => new Promise((done) => {
    let sum = 0;
    const add = (list) => list.getEntries().forEach(({ value }) => { sum += value; });
    new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
    requestAnimationFrame(() => setTimeout(() => done(sum)));
})"""

# How many points are as blue as a curve, and not as the band around it.
BLUE = """canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((_, i) => i % 4 === 2 && data[i] - data[i - 2] > 120).length;
}"""


def test_runs_are_compared_without_a_mouse(browsing: Browsing) -> None:
    bed = browsing.site.bed
    bed.make("learner")
    bed.worker("learner")
    jobs = [
        bed.script(LEARNS, f"{lr}", name=f"lr-{lr}", experiment="compared", parameters={"lr": lr})
        for lr in (1, 2)
    ]
    for job in jobs:
        bed.succeeds(job)
    page = browsing.open("/compare?" + "&".join(f"job={job}" for job in jobs))
    names = page.locator("#charts-legend button")
    chart = page.locator("#charts-place .chart-place")
    expect(names).to_have_count(2)
    # What is hidden takes no key.
    expect(chart.locator("canvas")).to_be_visible()
    assert page.evaluate(SHIFT) < 0.1
    assert (
        len({name.locator("line").get_attribute("stroke-dasharray") for name in names.all()}) == 2
    )
    names.nth(1).press("Enter")
    chart.press("ArrowRight")
    expect(page.locator(".readout svg")).to_have_count(1)
    for key in ("Home", "Shift+ArrowRight", "Shift+PageDown", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("since=0&until=2$"))
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    expect(chart).to_be_focused()
    page.reload()
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    # Before, there is only the room for it, which takes no key.
    expect(chart.locator("canvas")).to_be_visible()
    chart.press("Escape")
    expect(page).not_to_have_url(re.compile("since"))
    page.get_by_role("link", name="Make it the baseline").click()
    expect(page.locator(".compare thead th").first).to_contain_text("lr-2")
    expect(page.locator(".compare tr", has_text="loss").last).to_contain_text("\u221250")
    page.route("**/series?*", of_many)
    page.goto(f"{browsing.site.url}/jobs/{jobs[0]}")
    assert chart.locator("canvas").first.evaluate(BLUE) > 100
    page.goto(f"{browsing.site.url}/runs?q=experiment:compared")
    page.locator(".plots summary").click()
    expect(page.locator(".plots circle")).to_have_count(2)
    assert page.evaluate(LOOK) == []


def of_many(route: Route) -> None:
    """Make each point of a curve one of many values, far apart."""
    got = route.fetch().json()
    for one in got["items"]:
        one["min"], one["max"] = ([bound] * len(one["avg"]) for bound in (-9, 9))
    route.fulfill(json=got)
