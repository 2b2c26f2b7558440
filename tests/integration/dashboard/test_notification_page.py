"""The page of notifications: what they tell, what was sent, and what was given up."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Role
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api

NAME = "<ops>"
HOOK = {"kind": "slack", "target": "https://hooks.example/T0/secret", "query": "name:train*"}
WHY = "the receiver answered <b>500</b>"


@pytest.fixture
def ann(api: Api) -> Iterator[Guest]:
    caller = api.key("ann", Role.SUBMITTER)
    caller.call("PUT", f"/api/v1/queue/notifications/{NAME}", HOOK)
    for _ in range(2):
        caller.post(f"/api/v1/queue/test-notification/{NAME}")
        given_up = "state = 'failed', tries = 8, error = %s, settled_at = forge_now()"
        api.rig.rows(f"UPDATE delivery SET {given_up}", WHY)
    guest = Guest(api).login("ann", Role.SUBMITTER)
    yield guest
    guest.close()


def waiting(api: Api) -> int:
    return api.rig.count("delivery WHERE state = 'waiting' AND tries = 0")


def test_a_notification_is_made_on_the_page(api: Api, ann: Guest) -> None:
    given = {"name": "mine", "kind": "webhook", "events": "failed", "query": "name:x*"}
    for wrong in ({"target": "no url"}, {"target": HOOK["target"], "query": "state:"}):
        answer = ann.act("/notifications/add", **{**given, **wrong})
        assert (answer.status_code, 'role="alert"' in answer.text) == (422, True), wrong
    made = ann.act("/notifications/add", **given, target="https://hooks.example/x")
    assert made.status_code == 200
    secret = api.rig.row("SELECT secret FROM notification WHERE name = 'mine'")["secret"]
    assert secret in made.text
    assert secret not in ann.page("/notifications")
    again = ann.act("/notifications/add", **given, target="https://other.example/x")
    assert (again.status_code, "of this name" in again.text) == (422, True)
    (kept,) = api.rig.rows("SELECT events, query FROM notification WHERE name = 'mine'")
    assert (kept["events"], kept["query"]) == (["failed"], "name:x*")
    _changed(api, ann)
    answer = ann.act("/notifications/remove", name="mine", owner="ann")
    assert answer.headers["location"] == "/notifications"
    assert api.rig.count("notification WHERE name = 'mine'") == 0


def _changed(api: Api, ann: Guest) -> None:
    """Change all but the target in the form that the page fills in."""
    form = ann.page("/notifications?change=mine&owner=ann")
    assert 'value="mine"' in form
    assert 'value="name:x*"' in form
    given = {"changed": "ann", "name": "mine", "kind": "webhook", "target": "", "events": "stalled"}
    wrong = ann.act("/notifications/add", **given, query="state:")
    assert (wrong.status_code, 'name="changed" value="ann"' in wrong.text) == (422, True)
    other = ann.act("/notifications/add", **{**given, "kind": "slack"}, query="")
    assert (other.status_code, "its own target" in other.text) == (422, True)
    changed = ann.act("/notifications/add", **given, query="")
    assert changed.headers["location"] == "/notifications"
    (now,) = api.rig.rows("SELECT events, query, target FROM notification WHERE name = 'mine'")
    assert now == {"events": ["stalled"], "query": "", "target": "https://hooks.example/x"}


def test_what_was_given_up_is_shown_with_its_error_and_sent_again(api: Api, ann: Guest) -> None:
    page = ann.page("/notifications")
    assert html.escape(NAME) in page
    assert html.escape(WHY) in page
    assert NAME not in page
    assert "<code>name:train*</code>" in page
    assert "https://hooks.example/…" in page
    assert "secret" not in page
    assert "2 given up" in page
    (first, _) = [str(row["id"]) for row in api.rig.rows("SELECT id FROM delivery")]
    for sent in (1, 1):
        answer = ann.act("/notifications/retry", delivery=first)
        assert (answer.status_code, answer.headers["location"]) == (303, "/notifications")
        assert waiting(api) == sent
    assert "1 waiting, 1 given up" in ann.page("/notifications?part=rows")
    ann.act("/notifications/retry-all", name=NAME, owner="ann")
    assert waiting(api) == 2
    assert "given up" not in ann.page("/notifications?part=rows")


def test_a_notification_is_tried_from_its_page(api: Api, ann: Guest) -> None:
    answer = ann.act("/notifications/test", name=NAME, owner="ann")
    assert (answer.status_code, answer.headers["location"]) == (303, "/notifications")
    assert waiting(api) == 1


def test_a_notification_whose_maker_left_is_shown_as_paused(api: Api, ann: Guest) -> None:
    assert "paused" not in ann.page("/notifications")
    maker = api.rig.row("SELECT substr(actor, 5) AS id FROM notification")["id"]
    assert api.key("root", Role.ADMIN).call("DELETE", f"/api/v1/admin/keys/{maker}").is_success
    page = ann.page("/notifications")
    assert "paused" in page
    assert f"the key {maker} of ann, which made it, was revoked" in page
    answer = ann.act("/notifications/test", name=NAME, owner="ann")
    assert "is paused" in html.unescape(answer.text)


def test_a_viewer_has_no_buttons_another_owner_no_row_and_an_admin_all(
    api: Api, ann: Guest
) -> None:
    assert "/notifications/retry" in ann.page("/notifications")
    for owner, role, sees, acts in (
        ("ann", Role.VIEWER, True, False),
        ("bob", Role.SUBMITTER, False, False),
        ("root", Role.ADMIN, True, True),
    ):
        guest = Guest(api).login(owner, role)
        page = guest.page("/notifications")
        guest.close()
        assert (html.escape(NAME) in page) is sees
        assert ('action="/notifications/test' in page) is acts
        assert ('action="/notifications/add' in page) is (role is not Role.VIEWER)
