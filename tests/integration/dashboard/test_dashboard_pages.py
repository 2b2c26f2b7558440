"""Pages: what every one of them says to a browser, and that none grows without bound."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from forge_functions.dashboard.assets import address, assets
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.states import Reason, Role
from forge_schema.read import overview
from forge_schema.read.audit import Audit
from forge_schema.read.report_definitions import REPORTS
from psycopg.types.json import Jsonb
from support.http.api import problem
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api

EVIL = "<script>alert(1)</script>'\"&"
INLINE = re.compile(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)
PAGES = ["/", "/queues", "/reports", "/events", *(f"/reports/{name}" for name in REPORTS)]


@pytest.fixture(scope="module")
def root(shared_api: Api) -> Iterator[Guest]:
    shared_api.rig.submit(name=EVIL, queue=EVIL, owner=EVIL)
    shared_api.rig.submit(name=EVIL, queue="run", owner=EVIL)
    shared_api.rig.worker(EVIL).claim_one()
    guest = Guest(shared_api).login(EVIL, Role.ADMIN)
    yield guest
    guest.close()


@pytest.mark.parametrize("path", [*PAGES, "/none"])
def test_a_page_lets_a_browser_do_next_to_nothing(root: Guest, path: str) -> None:
    answer = root.http.get(path)
    assert answer.status_code == (404 if path == "/none" else 200), answer.text[:300]
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert not INLINE.search(answer.text.replace(EVIL, "")), "the policy forbids it"
    assert "alert(1)</script>" not in answer.text
    head = root.http.head(path)
    assert (head.status_code, head.content) == (answer.status_code, b"")
    assert head.headers["content-type"] == answer.headers["content-type"]


@pytest.mark.parametrize(
    ("path", "part"), [("/", "now"), ("/queues", "rows"), ("/queues", "demand")]
)
def test_what_jobs_and_queues_are_called_is_only_text(root: Guest, path: str, part: str) -> None:
    shown = root.page(f"{path}?part={part}")
    assert "<html" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert "<script" not in shown


def test_only_what_is_a_part_is_one(root: Guest) -> None:
    for part in ("none", "_rows", "", "__class__"):
        assert root.http.get(f"/queues?part={part}").status_code == 404


def test_assets_are_kept_for_good_under_the_hash_of_their_content(shared_api: Api) -> None:
    for path, asset in assets().items():
        answer = shared_api.http.get(address(path))
        assert answer.content == asset.content
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == asset.kind
        assert answer.headers["content-encoding"] == "gzip"
    plain = shared_api.http.get(address("forge.css"), headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(assets()["forge.css"].packed) == plain.content
    old = shared_api.http.get("/static/0123456789abcdef/forge.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    for path in ("/static/0/../server.py", "/static/0/%2e%2e/page.py", "/static/0/", "/static/"):
        assert shared_api.http.get(path).status_code == 404


def test_every_language_is_offered_and_the_browsers_own_is_the_first(shared_api: Api) -> None:
    guest = Guest(shared_api, **{"Accept-Language": "fr, hi-IN;q=0.8, en;q=0.5"})
    page = guest.page("/login")
    assert 'lang="hi"' in page
    assert "लॉग इन" in page
    guest.http.cookies.set("forge_language", "en")
    assert "Log in" in guest.page("/login")
    guest.close()


def test_events_come_page_by_page_each_once(root: Guest) -> None:
    for number in range(120):
        Audit(root.api.rig.database).note("user:many", "many", {"number": number})
    seen: list[int] = []
    path: str | None = "/events?actor=user%3Amany&action=MANY"
    while path is not None:
        page = root.page(path)
        numbers = [int(n) for n in re.findall(r'number</span> <span class="mono">(\d+)<', page)]
        assert len(numbers) <= 50
        seen += numbers
        older = re.search(r'href="([^"]+)" rel="next"', page)
        path = older[1].replace("&amp;", "&") if older else None
    assert seen == list(range(119, -1, -1))
    # What is told once takes the room of one.
    for _ in range(60):
        Audit(root.api.rig.database).note("user:many", "again", {})
    page = root.page("/events?actor=user%3Amany")
    assert "\u00d7 60" in page
    assert '<span class="mono">119<' in page
    assert "No event matches." in root.page("/events?actor=nobody")
    # The trail has the key, the page its owner.
    assert "Logged in" in root.page(f"/events?actor={quote(EVIL[1:].upper())}&action=login")
    assert root.http.get("/events?job=x").status_code == 422
    assert "Worker connected" in root.page(f"/events?worker={quote(EVIL)}")
    assert root.http.get(f"/events?worker={9**60}").status_code == 404
    wrong = root.http.get("/reports/cost?since=x&by=nothing")
    assert wrong.status_code == 422
    assert "<p>The report cost cannot be grouped by" in html.unescape(wrong.text)
    assert 'name="since" value="x"' in wrong.text, "the form stays"


def test_a_filter_looks_no_further_than_it_says(
    root: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_schema.read.audit.REACH", 10)
    root.api.rig.submit_many(11)
    page = root.page("/events?action=created+long+ago")
    assert "Searched the actions since" in page
    assert 'rel="next"' in page


def test_queues_come_page_by_page(root: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "PAGE", 3)
    for number in range(7):
        root.api.rig.submit(queue=f"page-{number}")
    seen: list[str] = []
    path: str | None = "/queues?after=page-"
    while path is not None:
        page = root.page(path)
        found = re.findall(r'<th scope="row">(page-\d)</th>', page)
        assert len(found) <= 3
        seen += found
        more = re.search(r'href="([^"]*after=page-\d)"', page)
        path = more[1] if more else None
    assert seen == [f"page-{number}" for number in range(7)]


def test_who_is_no_admin_sees_the_own_jobs_alone(shared_api: Api) -> None:
    shared_api.rig.submit(owner="zora", queue="zoras", name="zoras-own")
    shared_api.rig.submit(owner="ann", queue="anns", name="anns-own")
    ann = Guest(shared_api).login("ann", Role.VIEWER)
    pages = [ann.page(path) for path in ("/queues", "/queues?part=demand", "/reports/jobs")]
    assert "anns" in pages[0]
    assert "anns-own" in pages[2]
    assert not [page for page in pages if "zora" in page]
    assert "/queues/pause" not in pages[0]
    for path in ("/reports/audit", "/reports/audit.csv", "/events"):
        assert ann.http.get(path).status_code == 403
    ann.close()


def test_every_report_is_on_the_page_of_reports_once(root: Guest) -> None:
    named = re.findall(r'<a href="/reports/(\w+)">', root.page("/reports"))
    assert sorted(named) == sorted(REPORTS)


def test_a_report_is_saved_as_a_spreadsheet_takes_it(root: Guest) -> None:
    root.api.rig.submit(owner="ann", name="=1+1", queue="sheet")
    answer = root.http.get("/reports/jobs.csv?since=1h")
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "'=1+1" in answer.text
    assert ",=1+1" not in answer.text
    grouped = root.page("/reports/jobs?since=1h&by=queue&by=state")
    assert '<a href="/jobs?q=queue:sheet">sheet</a>' in grouped
    assert root.http.get("/reports/jobs?by=nothing").status_code in {400, 422}
    assert root.http.get("/reports/none").status_code == 404


def test_a_report_is_sorted_by_any_column_and_added_up(root: Guest) -> None:
    rig = root.api.rig
    for _ in range(2):
        rig.submit(owner="cleo", queue="few")
    rig.submit_many(3, owner="cleo", queue="many")
    grouped = "/reports/jobs?since=1h&by=owner&by=queue&sort=jobs"
    for path, order in ((grouped, ["few", "many"]), (f"{grouped}&down=true", ["many", "few"])):
        shown = root.page(path)
        queues = re.findall(r"q=queue:(few|many)", shown)
        assert queues == order
    assert "data-chart" not in shown
    (total,) = re.findall(r"<tfoot>.*?>(\d+)</td>", shown)
    assert int(total) == rig.count("job")
    assert shown.count('class="bar"') == shown.count("<tr>") - 2
    earlier = "submitted_at - interval '2 days'"
    rig.rows(f"UPDATE job SET submitted_at = {earlier} WHERE id = %s", rig.submit())
    (chart,) = re.findall(r"data-chart='(.*?)'", root.page("/reports/jobs?since=7d&by=day"))
    (series,) = json.loads(html.unescape(chart))["series"]
    assert (series["label"], series["values"]) == ("jobs", [1, 0, int(total)])


def test_a_saved_report_is_read_by_programs_too(root: Guest) -> None:
    rows = list(csv.DictReader(io.StringIO(root.http.get("/reports/audit.csv").text)))
    details = [json.loads(row["detail"]) for row in rows if row["detail"]]
    assert {"submitted", "dispatched"} <= {row["action"] for row in rows}
    assert {type(detail) for detail in details} == {dict}
    assert all(datetime.fromisoformat(row["at"]).tzinfo and "T" in row["at"] for row in rows)


def test_the_queues_count_the_gpus_of_all_machines_of_a_job(api: Api) -> None:
    for nodes in (2, 4):
        api.rig.submit(nodes=nodes, gpus=2)
    (queue,) = overview.queues(api.rig.database)
    assert (queue["waiting"], queue["waiting_gpus"]) == (2, 12)
    guest = Guest(api).login("root", Role.ADMIN)
    assert "· 4 machines" in guest.page("/queues")
    api.rig.clock.advance(300)
    past = guest.page("/queues?part=history&over=6h&queue=default")
    chart = html.unescape(re.findall(r"data-chart='([^']*)'", past)[0])
    drawn = json.loads(chart)
    assert len(drawn["x"]) == 2, "it begins when the queue did"
    since, until = drawn["range"]
    assert until - since == 300, "and ends now"
    assert since < drawn["x"][0] < drawn["x"][1] < until
    assert "Jobs waiting and running" in past
    # Both waited for all of the last whole step.
    assert '<td class="num">2</td>' in past
    assert "Nothing waited or ran" in guest.page("/queues?part=history&queue=other")
    assert guest.http.get("/queues?over=1y").status_code == 422
    guest.close()


def test_the_overview_begins_with_a_first_job_and_then_names_failures(api: Api) -> None:
    root = Guest(api).login("root", Role.ADMIN)
    bob = Guest(api).login("bob", Role.SUBMITTER)
    first = root.page("/")
    assert "Run a first job" in first
    assert "<dl" not in first.partition("<main")[2].partition("<dialog")[0]
    form = dict(re.findall(r'name="(idempotency_key|name|command)" value="([^"]*)"', first))
    for _ in range(2):
        sent = root.act("/submit", **{key: html.unescape(value) for key, value in form.items()})
    job = int(sent.headers["location"].removeprefix("/jobs/"))
    assert api.rig.count("job") == 1
    assert "Run a first job" not in root.page("/")
    assert "Run a first job" in bob.page("/")
    api.rig.finish(api.rig.worker().claim_one(), Reason.TIMEOUT, detail="after 1 h")
    api.rig.queue.cancel(api.rig.submit())
    overview = root.page("/")
    _, _, failed = overview.partition("Failed in the last day")
    chart = re.findall(r"data-chart='([^']*)'", overview)[0]
    drawn = json.loads(html.unescape(chart))["series"]
    assert [sum(one["values"]) for one in drawn] == [2, 1, 1]
    assert f'<a href="/jobs/{job}">sample</a>' in failed
    assert "over its time limit" in failed
    assert ">after 1 h<" in failed
    ends = ("== 1 failed in 0.1s ==", "failed the same way twice: == 1 failed in 22.75s ==")
    for end in ends:
        api.rig.submit(max_failures=0)
        api.rig.finish(
            api.rig.worker().claim_one(), Reason.EXIT_CODE, detail=end.replace("=", "===")
        )
    api.rig.submit(gpus=8, name="huge")
    overview = root.page("/?part=now")
    assert overview.count("<li>\n    <div><strong>") == 2
    assert ">failed the same way twice: 1 failed in 22.75s<" in overview
    assert overview.count("no worker can run it") == 2
    assert "none of these workers has a price" in root.page("/reports/cost")
    assert root.http.get(f"/find?q={job}").headers["location"] == f"/jobs/{job}"
    assert root.http.get("/find?q=sam*").headers["location"] == "/jobs?q=sam%2A"
    for guest in (root, bob):
        guest.close()


def test_what_is_stuck_is_told_however_long_it_has_been(api: Api) -> None:
    api.rig.submit(labels={"zone": "moon"}, name="forgotten")
    api.rig.clock.advance(30 * 86_400)
    root = Guest(api).login("root", Role.ADMIN)
    assert "forgotten" in root.page("/reports/stuck")
    assert "forgotten" in root.page("/reports/stuck?since=")
    assert "forgotten" not in root.page("/reports/stuck?since=7d")
    root.close()


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?q=%00",
        "/jobs/confirm?act=cancel&all=1&q=%00",
        "/workers?q=%00",
        "/workers?after=%00",
        "/jobs/1?files=%00",
        "/jobs/1/artifact?path=%00",
    ],
)
def test_what_no_row_can_hold_is_refused(root: Guest, path: str) -> None:
    assert root.http.get(path).status_code == 422


@pytest.mark.parametrize("odd", [["a"], "x", {"GPU-1": "x"}, {"GPU-1": {"power_w": "much"}}])
def test_a_worker_that_tells_odd_things_has_its_page(root: Guest, odd: object) -> None:
    rig = root.api.rig
    worker = rig.worker("odd", gpus=[{"uuid": "GPU-1", "name": "T4", "vram_mb": 1}])
    with psycopg.connect(rig.url, autocommit=True) as connection:
        said = Jsonb({"gpus": odd, "quarantine": odd})
        connection.execute("UPDATE worker SET condition = %s WHERE id = %s", [said, worker.id])
    assert "Drain" in root.page(f"/workers/{worker.id}")


def test_errors_are_pages_for_people_and_json_for_programs(
    root: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/none", "/jobs/abc"):
        lettered = root.http.get(path)
        assert lettered.status_code == 404
        assert "There is no page with this address." in lettered.text
        assert 'href="/workers"' in lettered.text
    problem(root.http.get("/jobs/abc", headers={"Accept": "*/*"}), 422, "invalid")
    problem(root.http.get("/none", headers={"Accept": "*/*"}), 404, "not_found")
    problem(root.http.get("/api/none"), 404, "not_found")

    def away(*_args: object, **_more: object) -> None:
        raise DatabaseUnreachable("the database db.internal:5432/forge does not answer")

    monkeypatch.setattr("forge_schema.database.pool.Database.rows", away)
    answer = root.http.get("/queues")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "Forge is not available now" in answer.text
    assert "db.internal" not in answer.text
    assert "frame-ancestors" in answer.headers["content-security-policy"]


def test_a_part_that_has_not_changed_is_not_sent_again(shared_api: Api) -> None:
    root = Guest(shared_api).login("root", Role.ADMIN)
    part = root.http.get("/schedules?part=rows")
    digest = {"X-Part": part.headers["x-part"]}
    again = root.http.get("/schedules?part=rows", headers=digest)
    assert (again.status_code, again.content) == (204, b"")
    assert root.http.get("/schedules?part=rows", headers={"X-Part": "0"}).text == part.text


def test_what_holds_the_token_of_a_session_is_not_packed(api: Api) -> None:
    root = Guest(api).login("root", Role.ADMIN)
    job = api.rig.submit_many(30)[0]
    packed = {path: "content-encoding" in root.http.get(path).headers for path in (
        "/jobs?part=rows", f"/jobs/{job}/log", f"/jobs/{job}?part=status", "/jobs", f"/jobs/{job}",
    )}  # fmt: skip
    assert [path for path, is_packed in packed.items() if is_packed] == ["/jobs?part=rows"]
    plain = root.http.get("/jobs?part=rows", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == root.http.get("/jobs?part=rows").text
    root.close()
