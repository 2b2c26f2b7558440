"""Pictures of every page for docs/screenshots, of a database with a past and a real running job.

`make screenshots` runs it. It needs Chromium, and letters for Hindi.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import psycopg
from browser.chromium import PHONE, Browsing, chromium
from browser.site import running_site
from forge_schema.database.migrate import upgrade
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.model.states import Role
from forge_schema.queue.inputs import Uploads
from playwright.sync_api import expect
from support.database import postgres
from support.past import history
from support.waiting import eventually
from support.workers.digits import EXAMPLE

if TYPE_CHECKING:
    from browser.site import Site
    from playwright.sync_api import Browser, Page, ViewportSize

HERE = Path(__file__).parent
PICTURES = HERE.parents[1] / "docs" / "screenshots"
ATTEMPTS = 12_000
# The workers of a past are nobody's, and would soon be missed.
DAY_S = 86_400.0
DESKTOP: ViewportSize = {"width": 1280, "height": 860}
LOOKS = {"light": (DESKTOP, "light"), "dark": (DESKTOP, "dark"), "phone": (PHONE, "light")}
# Charts and logs come after the page.
COMPLETE = """() => {
    const is = (selector) => document.querySelector(selector) !== null;
    const charts = [...document.querySelectorAll(".chart-place")];
    return charts.every((one) => one.querySelector("canvas")) &&
        (!is("#log") || is(".log-line, #log-empty")) &&
        (!is("#charts") || is("#charts-place canvas"));
}"""
TRIED = "SELECT id FROM job WHERE experiment = 'resnet50' ORDER BY id LIMIT 5"
ON_GPUS = "SELECT job_id, worker_id FROM lease ORDER BY cardinality(devices) DESC, job_id LIMIT 1"
IN_HINDI = ("overview", "job")


@dataclass(frozen=True)
class Shown:
    """What the pictures show: a real job that runs for the second time; one of the past on GPUs."""

    job: int
    on_gpus: int
    worker: int
    runs: tuple[int, ...]

    @property
    def pages(self) -> dict[str, str]:
        """The address of each picture's page."""
        return {
            "overview": "/",
            "jobs": "/jobs?q=train-resnet",
            "job": f"/jobs/{self.job}",
            "curves": f"/jobs/{self.on_gpus}#charts",
            "runs": "/runs?q=experiment:resnet50&sort=metrics.loss.best",
            "compare": f"/compare?{urlencode({'job': self.runs}, doseq=True)}",
            "submit": f"/submit?from={self.job}",
            "workers": "/workers",
            "worker": f"/workers/{self.worker}",
            "new-worker": "/workers/new",
            "queues": "/queues",
            "reports": "/reports",
            "report": "/reports/failures?since=4w&by=reason",
            "events": "/events",
        }


def main() -> None:
    """Fill a database, run a job, and take the pictures."""
    with (
        postgres.running(None) as server,
        server.database() as url,
        tempfile.TemporaryDirectory() as root,
        chromium() as browser,
    ):
        upgrade(url)
        history.fill(url, ATTEMPTS)
        execute(url, "past_of_today.sql")
        execute(url, "a_training.sql")
        execute(url, "a_search.sql")
        execute(url, "still_here.sql")
        with running_site(Path(root), url, ttl_s=DAY_S) as site:
            shown = lively(site)
            take(browser, site, shown, PICTURES)
            site.bed.queue.cancel(shown.job)
            site.bed.ended(shown.job)
            execute(url, "past_over.sql")


def lively(site: Site) -> Shown:
    """Have a training run, be preempted, and run again."""
    bed = site.bed
    # A job says `python`; and there is no room for a job of the past.
    bed.environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    bed.make("studio", labels={"zone": "b"})
    bed.worker("studio", cpus=0.5, sample_s=1, price_per_hour=1.2)
    training = JobSpec(
        name="digits-mlp",
        owner="root",
        command=["python", "train.py", "--epochs", "2000", "--seconds-per-epoch", "0.4"],
        resources=Resources(cpus=0.5, memory_mb=512, disk_mb=1024),
        bundle_digest=bed.upload(EXAMPLE),
        checkpoint_interval_s=5,
    )
    Uploads(bed.database).add(training.owner, training.bundle_digest or "")
    job = bed.queue.submit([training])[0]
    bed.says(job, "epoch 12/", timeout=600)
    assert bed.queue.preempt(job)
    eventually(lambda: bed.reasons(job) == ["preempted"], timeout=600)
    bed.says(job, "epoch 40/", timeout=600)
    with psycopg.connect(bed.database.url) as connection:
        found = connection.execute(ON_GPUS).fetchone()
        runs = tuple(run for (run,) in connection.execute(TRIED))
    assert found is not None
    return Shown(job, found[0], found[1], runs)


def take(browser: Browser, site: Site, shown: Shown, folder: Path, *, whole: bool = False) -> None:
    """Write the pictures, of whole pages if so wished."""
    browsing = Browsing(browser, site, folder)
    for look, (size, scheme) in LOOKS.items():
        window = browsing.window(Role.ADMIN, viewport=size, color_scheme=scheme)
        page = window.new_page()
        for name, path in shown.pages.items():
            shot(page, site, path, folder / f"{name}-{look}.png", whole=whole)
        window.clear_cookies()
        shot(page, site, "/login", folder / f"login-{look}.png", whole=whole)
    for name in IN_HINDI:
        page = browsing.open(locale="hi", viewport=DESKTOP, color_scheme="light")
        shot(page, site, shown.pages[name], folder / f"{name}-hindi.png", whole=whole)
    browsing.close()
    assert browsing.complaints == []


def shot(page: Page, site: Site, path: str, to: Path, *, whole: bool) -> None:
    """Take one picture, when everything on the page is there."""
    execute(site.bed.database.url, "still_here.sql")
    page.goto(site.url + path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_function(COMPLETE)
    page.screenshot(path=to, full_page=whole, animations="disabled", caret="hide")
    sys.stdout.write(f"{to.name} {to.stat().st_size // 1024} KiB\n")


def execute(url: str, name: str) -> None:
    """Run a file of SQL on a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((HERE / name).read_text(encoding="utf-8").encode())


if __name__ == "__main__":
    main()
