"""The page of schedules, and what a job's page says of its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Role
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api

NIGHTLY = {"cron": "0 3 * * *", "spec": {"name": "x", "command": ["ls"]}, "overlap": False}


@pytest.fixture
def ann(api: Api) -> Iterator[Guest]:
    api.key("ann", Role.SUBMITTER).call("PUT", "/api/v1/queue/schedules/<nightly>", NIGHTLY)
    guest = Guest(api).login("ann", Role.SUBMITTER)
    yield guest
    guest.close()


def test_a_schedule_is_paused_resumed_and_removed_on_its_page(api: Api, ann: Guest) -> None:
    page = ann.http.get("/schedules").text
    assert "&lt;nightly&gt;" in page
    assert "<code>0 3 * * *</code>" in page
    assert "<code>ls</code>" in page
    assert "no overlap" in page
    for said, paused in (("true", True), ("false", False)):
        answer = ann.act("/schedules/pause", name="<nightly>", owner="ann", paused=said)
        assert (answer.status_code, answer.headers["location"]) == (303, "/schedules")
        assert api.rig.row("SELECT paused FROM schedule")["paused"] is paused
    assert ann.act("/schedules/remove", name="<nightly>", owner="ann").status_code == 303
    assert "nightly" not in ann.page("/schedules")


def test_a_schedule_is_made_of_the_form_of_a_job(api: Api, ann: Guest) -> None:
    form = {"command": "python eval.py", "name": "eval", "gpus": "2", "idempotency_key": "form:1"}
    for wrong, told in (
        ({"schedule": "", "cron": "0 4 * * *"}, "fault-schedule"),
        ({"schedule": "daily", "cron": "0 4"}, "fault-cron"),
        ({"schedule": "daily", "cron": "0 4 * * *", "timezone": "Mars"}, "fault-"),
        ({"schedule": "daily", "cron": "0 4 * * *", "gpus": "two"}, "fault-gpus"),
    ):
        answer = ann.act("/submit/schedule", **{**form, **wrong})
        assert (answer.status_code, told in answer.text) == (422, True), wrong
        assert 'value="eval"' in answer.text
    for _ in range(2):
        answer = ann.act("/submit/schedule", **form, schedule="daily", cron="0 4 * * *")
        assert (answer.status_code, answer.headers["location"]) == (303, "/schedules")
    kept = api.rig.row("SELECT owner, timezone, spec FROM schedule WHERE name = 'daily'")
    assert (kept["owner"], kept["timezone"]) == ("ann", "UTC")
    assert kept["spec"]["command"] == ["python", "eval.py"]
    assert kept["spec"]["resources"]["gpus"] == 2
    page = ann.page("/submit")
    assert page.index("button primary") < page.index("/submit/schedule"), "Enter presses the first"


def test_the_pages_tell_of_the_last_job_and_of_why_there_was_none(api: Api, ann: Guest) -> None:
    for _ in range(2):
        api.rig.clock.advance(86_400)
        api.rig.tick.run()
    job_id = api.rig.row("SELECT id FROM job")["id"]
    ann.login("ann", Role.SUBMITTER)  # two days later, the session has lapsed
    page = ann.http.get("/schedules?part=rows").text
    assert f'<a href="/jobs/{job_id}">' in page
    assert f"skipped: job {job_id} had not ended" in page
    job = ann.http.get(f"/jobs/{job_id}").text
    assert "Submitted by the schedule &lt;nightly&gt;, due" in job
    assert "2031-01-01 03:00:00 UTC" in job


def test_a_viewer_has_no_buttons_and_another_owner_no_row(api: Api, ann: Guest) -> None:
    assert "/schedules/pause" in ann.http.get("/schedules").text
    for owner, role, sees in (("ann", Role.VIEWER, True), ("bob", Role.SUBMITTER, False)):
        guest = Guest(api).login(owner, role)
        page = guest.http.get("/schedules").text
        guest.close()
        assert ("nightly" in page) is sees
        assert "/schedules/pause" not in page
