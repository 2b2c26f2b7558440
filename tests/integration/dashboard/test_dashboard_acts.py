"""Actions on pages: only the session's own pages can request one, and a reload never repeats it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Role
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api

PAUSE = {"name": "night", "paused": "true"}


@pytest.fixture(scope="module")
def root(shared_api: Api) -> Iterator[Guest]:
    guest = Guest(shared_api).login("root", Role.ADMIN)
    yield guest
    guest.close()


def paused(root: Guest, name: str) -> bool:
    rows = root.api.rig.rows("SELECT paused FROM queue WHERE name = %s", name)
    return bool(rows and rows[0]["paused"])


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, "own"),
        ({"Origin": "https://evil.example"}, "own"),
        ({"Origin": "null"}, "own"),
        ({"Origin": "SELF", "Sec-Fetch-Site": "cross-site"}, "own"),
        ({"Origin": "SELF", "Sec-Fetch-Site": "same-site"}, "own"),
        ({"Sec-Fetch-Site": "none"}, "own"),
        ({"Origin": "SELF"}, ""),
        ({"Origin": "SELF"}, "other"),
        ({"Origin": "SELF"}, "\u00ff"),
        ({"Origin": "SELF", "Content-Type": "text/plain"}, "own"),
    ],
    ids=range(10),
)
def test_what_no_page_of_the_session_asked_for_is_refused(
    root: Guest, headers: dict[str, str], token: str
) -> None:
    other = Guest(root.api).login("root", Role.ADMIN)
    known = {"own": root.token(), "other": other.token()}
    other.close()
    given = {name: root.api.url if value == "SELF" else value for name, value in headers.items()}
    fields = {**PAUSE, "csrf": known.get(token, token)}
    answer = root.http.post("/queues/pause", data=fields, headers=given)
    assert answer.status_code == 403
    assert not paused(root, "night")
    assert 'lang="en"' in answer.text


def test_a_form_leads_back_to_its_page_and_a_script_stays_on_it(root: Guest) -> None:
    answer = root.act("/queues/pause", name="day", paused="true")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queues")
    assert paused(root, "day")
    headers = {
        "Origin": root.api.url,
        "HX-Request": "true",
        "HX-Current-URL": f"{root.api.url}/queues",
        "X-CSRF-Token": root.token(),
    }
    fields = {"name": "day", "paused": "false"}
    answer = root.http.post("/queues/pause", data=fields, headers=headers)
    assert (answer.status_code, answer.text) == (204, "")
    assert set(json.loads(answer.headers["hx-trigger"])) == {"refresh", "refresh-slowly", "said"}
    assert not paused(root, "day")


def test_a_refusal_is_told_in_the_place_of_the_act(root: Guest) -> None:
    script = {"Origin": root.api.url, "HX-Request": "true", "X-CSRF-Token": root.token()}
    fields = {"name": "day", "max_jobs": "many"}
    answer = root.http.post("/queues/limits", data=fields, headers=script)
    assert answer.status_code == 422
    assert "max_jobs" in answer.text
    assert "<html" not in answer.text
    by_form = root.act("/queues/limits", **fields)
    assert by_form.status_code == 422
    assert "<html" in by_form.text
    assert "max_jobs" in by_form.text


def test_limits_are_set_and_taken_away(root: Guest) -> None:
    limits = "SELECT max_jobs, max_gpus FROM queue WHERE name = 'tight'"
    root.act("/queues/limits", name="tight", max_jobs="3", max_gpus="")
    assert root.api.rig.rows(limits) == [{"max_jobs": 3, "max_gpus": None}]
    assert "3 jobs" in root.page("/queues?part=rows&after=tigh")
    root.act("/queues/limits", name="tight", max_jobs="", max_gpus="8")
    assert root.api.rig.rows(limits) == [{"max_jobs": None, "max_gpus": 8}]


def test_preferences_need_no_session_but_this_origin(shared_api: Api) -> None:
    guest = Guest(shared_api)
    answer = guest.form("/preferences", language="hi", theme="dark", next="/login")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    page = guest.page("/login")
    assert '<html lang="hi" data-theme="dark">' in page
    guest.form("/preferences", language="xx", theme="<b>", next="https://evil.example")
    assert guest.page("/login") == page
    guest.form("/preferences", times="local")
    assert '<html lang="hi" data-theme="dark" data-local>' in guest.page("/login")
    foreign = {"Origin": "https://evil.example"}
    answer = guest.http.post("/preferences", data={"language": "en"}, headers=foreign)
    assert answer.status_code == 403
    guest.close()
