"""Every page by every kind of visitor: the table says who comes in, and no page is without it."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from fastapi.routing import APIRoute
from forge_functions.dashboard.routes import ROUTERS
from forge_schema.model.states import Role
from support.http.api import bearer, opened
from support.http.guest import Guest
from support.http.issuer import CLIENT, issuing
from support.http.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.http.api import Api
    from support.http.issuer import Issuer
    from support.queue.rig import Rig

IN, NO, ABSENT, OUT = "in", "forbidden", "absent", "to the login"
NOBODY = ("none", "lapsed", "revoked", "bearer", "worker", "signed off")
PEOPLE = ("viewer", "submitter", "other owner", "admin")
OF_ALL = ("viewer of all", "signed on for all")
# These see the jobs of others: ann's, but for the other team's viewer.
SEEING: dict[str, tuple[str, Role, dict[str, Any]]] = {
    "team's viewer": ("eva", Role.VIEWER, {"team": "vision"}),
    "other team's viewer": ("eva", Role.VIEWER, {"team": "nlp"}),
    "team's submitter": ("cem", Role.SUBMITTER, {"team": "vision"}),
    "viewer of all": ("eva", Role.VIEWER, {"everyone": True}),
}


def each(viewer: str, submitter: str, other: str, admin: str) -> dict[str, str]:
    """Return the result of a request for each kind of visitor.

    Who sees ann's jobs comes as far as her viewer, and changes none.
    """
    people = dict(zip(PEOPLE, (viewer, submitter, other, admin), strict=True))
    people |= dict.fromkeys(("team's viewer", *OF_ALL), viewer)
    people["other team's viewer"] = NO if viewer == NO else other
    seeing = (NO if other == ABSENT else other) if viewer == NO else viewer
    people |= dict.fromkeys(("team's submitter", "team's signed on"), seeing)
    people["signed on"] = submitter
    return people | dict.fromkeys(NOBODY, OUT)


SEES = each(IN, IN, IN, IN)
SEES_OWN = each(IN, IN, ABSENT, IN)
# A team is seen by a key that sees it, and by being in it only with single sign-on.
SEES_TEAM = {
    **each(ABSENT, ABSENT, ABSENT, IN),
    **dict.fromkeys(("team's viewer", "team's submitter", *OF_ALL, "signed on"), IN),
    "team's signed on": IN,
}
SUBMITS = each(NO, IN, IN, IN)
ACTS_ON_OWN = each(NO, IN, ABSENT, IN)
RULES = each(NO, NO, NO, IN)
READS_ALL = RULES | dict.fromkeys(OF_ALL, IN)


def fixed(path: str, **form: str) -> Callable[[World], tuple[str, dict[str, str]]]:
    return lambda _world: (path, form)


def of_job(what: str = "") -> Callable[[World], tuple[str, dict[str, str]]]:
    return lambda world: (f"/jobs/{world.job()}{what}", {})


def of_worker(what: str = "") -> Callable[[World], tuple[str, dict[str, str]]]:
    return lambda world: (f"/workers/{world.absent_worker()}{what}", {})


TERMINAL = {"challenge": "c" * 43, "state": "s" * 43}
PAUSED = {"owner": "ann", "paused": "true"}
TABLE = {
    ("GET", "/"): (SEES, fixed("/")),
    ("GET", "/find"): (SEES, fixed("/find?q=1")),
    ("GET", "/jobs"): (SEES, fixed("/jobs")),
    ("GET", "/compare"): (SEES_OWN, lambda world: (f"/compare?job={world.job()}", {})),
    ("GET", "/runs"): (SEES, fixed("/runs")),
    ("GET", "/runs/runs.csv"): (SEES, fixed("/runs/runs.csv")),
    ("GET", "/jobs/confirm"): (SUBMITS, fixed("/jobs/confirm?act=cancel&job=1")),
    ("POST", "/jobs/{act}"): (SUBMITS, fixed("/jobs/cancel", jobs="1")),
    ("GET", "/jobs/{job_id}"): (SEES_OWN, of_job()),
    ("GET", "/jobs/{job_id}/log"): (SEES_OWN, of_job("/log")),
    ("GET", "/jobs/{job_id}/log.txt"): (SEES_OWN, of_job("/log.txt")),
    ("GET", "/jobs/{job_id}/series"): (SEES_OWN, of_job("/series")),
    ("GET", "/jobs/{job_id}/file"): (SEES_OWN, of_job("/file")),
    ("GET", "/jobs/{job_id}/image"): (SEES_OWN, of_job("/image")),
    ("GET", "/jobs/{job_id}/checkpoint"): (SEES_OWN, of_job("/checkpoint")),
    ("GET", "/jobs/{job_id}/artifact"): (SEES_OWN, of_job("/artifact")),
    ("POST", "/jobs/{job_id}/cancel"): (ACTS_ON_OWN, of_job("/cancel")),
    ("POST", "/jobs/{job_id}/retry"): (
        ACTS_ON_OWN,
        lambda world: (f"/jobs/{world.dead_job()}/retry", {}),
    ),
    ("POST", "/jobs/{job_id}/preempt"): (ACTS_ON_OWN, of_job("/preempt")),
    ("POST", "/jobs/{job_id}/annotate"): (
        ACTS_ON_OWN,
        lambda world: (f"/jobs/{world.job()}/annotate", {"add": "paper"}),
    ),
    ("POST", "/jobs/{job_id}/delete"): (
        ACTS_ON_OWN,
        lambda world: (f"/jobs/{world.dead_job()}/delete", {}),
    ),
    ("POST", "/jobs/{job_id}/approve"): (RULES, of_job("/approve")),
    ("GET", "/submit"): (SUBMITS, fixed("/submit")),
    ("POST", "/submit"): (SUBMITS, fixed("/submit")),
    ("POST", "/submit/preview"): (SUBMITS, fixed("/submit/preview")),
    ("POST", "/submit/schedule"): (SUBMITS, fixed("/submit/schedule")),
    ("GET", "/workers"): (SEES, fixed("/workers")),
    ("GET", "/workers/new"): (RULES, fixed("/workers/new")),
    ("POST", "/workers/new"): (RULES, fixed("/workers/new")),
    ("GET", "/workers/{worker_id:int}"): (SEES, of_worker()),
    ("POST", "/workers/{worker_id:int}/drain"): (RULES, of_worker("/drain")),
    ("POST", "/workers/{worker_id:int}/token"): (RULES, of_worker("/token")),
    ("POST", "/workers/{worker_id:int}/delete"): (RULES, of_worker("/delete")),
    ("GET", "/queues"): (SEES, fixed("/queues")),
    ("POST", "/queues/pause"): (RULES, fixed("/queues/pause", name="night", paused="true")),
    ("POST", "/queues/limits"): (RULES, fixed("/queues/limits", name="night")),
    ("GET", "/teams"): (SEES, fixed("/teams")),
    ("GET", "/teams/{name:path}"): (SEES_TEAM, fixed("/teams/vision")),
    ("POST", "/teams/join"): (RULES, fixed("/teams/join", name="audio", owners="gus")),
    ("POST", "/teams/leave"): (RULES, fixed("/teams/leave", name="vision", owner="gus")),
    ("POST", "/teams/limits"): (RULES, fixed("/teams/limits", name="gus", max_gpus="2")),
    ("POST", "/teams/remove"): (
        dict.fromkeys(RULES, ABSENT) | {k: v for k, v in RULES.items() if v in {NO, OUT}},
        fixed("/teams/remove", name="none"),
    ),
    ("GET", "/schedules"): (SEES, fixed("/schedules")),
    ("POST", "/schedules/pause"): (
        each(NO, IN, NO, IN),
        lambda world: ("/schedules/pause", {"name": world.schedule(), **PAUSED}),
    ),
    ("POST", "/schedules/remove"): (
        each(NO, IN, NO, IN),
        lambda world: ("/schedules/remove", {"name": world.schedule(), "owner": "ann"}),
    ),
    ("POST", "/schedules/run"): (
        each(NO, IN, NO, IN),
        lambda world: ("/schedules/run", {"name": world.schedule(), **PAUSED}),
    ),
    ("GET", "/inputs"): (SEES, fixed("/inputs")),
    ("POST", "/inputs/add"): (SUBMITS, fixed("/inputs/add", name="x", source="folder:sets")),
    # Each has inputs of the own.
    ("POST", "/inputs/remove"): (
        dict.fromkeys(SUBMITS, ABSENT) | {k: v for k, v in SUBMITS.items() if v in {NO, OUT}},
        fixed("/inputs/remove", name="none"),
    ),
    ("GET", "/notifications"): (SEES, fixed("/notifications")),
    ("POST", "/notifications/add"): (SUBMITS, fixed("/notifications/add")),
    ("POST", "/notifications/test"): (
        each(NO, IN, NO, IN),
        lambda world: ("/notifications/test", {"name": world.notification(), "owner": "ann"}),
    ),
    ("POST", "/notifications/remove"): (
        each(NO, IN, NO, IN),
        lambda world: ("/notifications/remove", {"name": world.notification(), "owner": "ann"}),
    ),
    ("POST", "/notifications/retry"): (
        ACTS_ON_OWN,
        lambda world: ("/notifications/retry", {"delivery": world.delivery("failed")}),
    ),
    ("POST", "/notifications/retry-all"): (
        each(NO, IN, NO, IN),
        lambda world: ("/notifications/retry-all", {"name": world.notification(), "owner": "ann"}),
    ),
    ("GET", "/reports"): (SEES, fixed("/reports")),
    ("GET", "/reports/{name}"): (SEES, fixed("/reports/jobs")),
    ("GET", "/reports/{name}.csv"): (SEES, fixed("/reports/jobs.csv")),
    ("GET", "/events"): (READS_ALL, fixed("/events")),
    ("GET", "/login/terminal"): (SEES, fixed(f"/login/terminal?{urlencode(TERMINAL)}")),
    ("POST", "/login/terminal"): (SEES, fixed("/login/terminal", **TERMINAL)),
    ("GET", "/keys"): (READS_ALL, fixed("/keys")),
    ("POST", "/keys/invite"): (RULES, fixed("/keys/invite", people="")),
    ("POST", "/keys/revoke"): (
        RULES,
        lambda world: ("/keys/revoke", {"key": world.spare_key()}),
    ),
}
# What is available before a login, and the logout.
OPEN = {
    ("GET", "/static/{digest}/{path:path}"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/login/link"),
    ("GET", "/login/sso"),
    ("GET", "/login/sso/done"),
    ("POST", "/login/link"),
    ("POST", "/login/terminal/key"),
    ("DELETE", "/login/terminal/key"),
    ("POST", "/preferences"),
    ("POST", "/logout"),
}


class Visitors:
    """One browser for each kind of visitor; four have logged in at an issuer."""

    def __init__(self, api: Api, issuer: Issuer) -> None:
        self.world = World(api)
        roles = {"viewer": Role.VIEWER, "submitter": Role.SUBMITTER, "revoked": Role.ADMIN}
        self.guests = {kind: Guest(api).login("ann", role) for kind, role in roles.items()}
        self.guests["signed off"] = Guest(api).sign_on(issuer, sub="eve", forge_role="admin")
        self.guests["signed on"] = Guest(api).sign_on(issuer)
        self.guests["team's signed on"] = Guest(api).sign_on(issuer, sub="dan", groups=["vision"])
        self.guests["signed on for all"] = Guest(api).sign_on(
            issuer, sub="fay", forge_role="viewer", groups=["profs"]
        )
        self.guests["other owner"] = Guest(api).login("bob", Role.SUBMITTER)
        self.guests["admin"] = Guest(api).login("root", Role.ADMIN)
        for kind, (owner, role, sees) in SEEING.items():
            self.guests[kind] = Guest(api).login(owner, role, **sees)
        self.tokens = {kind: guest.token() for kind, guest in self.guests.items()}
        api.keys.revoke(self.guests["revoked"].key_id)
        (session,) = [key["id"] for key in api.keys.listed() if key["acts_for"] == "oidc:eve"]
        api.keys.revoke(session)
        self.guests["lapsed"] = Guest(api).login("root", Role.ADMIN)
        self.tokens["lapsed"] = self.guests["lapsed"].token()
        self.guests["lapsed"].act("/logout")
        key = api.keys.create("root", Role.ADMIN)[1]
        self.guests["bearer"] = Guest(api, **bearer(key))
        self.guests["worker"] = Guest(api, **self.world.holder.headers)
        self.guests["none"] = Guest(api)

    def call(self, kind: str, method: str, path: str, form: dict[str, str]) -> str:
        """Send a request as one kind of visitor, and return the result."""
        guest = self.guests[kind]
        if method == "GET":
            answer = guest.http.get(path)
        else:
            answer = guest.form(path, csrf=self.tokens.get(kind, ""), **form)
        assert answer.status_code < 500, answer.text
        if answer.status_code == 303 and answer.headers["location"].startswith("/login"):
            return OUT
        return {401: OUT, 403: NO, 404: ABSENT}.get(answer.status_code, IN)

    def close(self) -> None:
        for guest in self.guests.values():
            guest.close()


def offered() -> set[tuple[str, str]]:
    """Return every method and path of the dashboard."""
    routes = [route for router in ROUTERS for route in router.routes]
    return {
        (method, route.path)
        for route in routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def test_the_table_has_every_page_and_no_other() -> None:
    assert offered() - OPEN == set(TABLE)
    assert offered() >= OPEN


@pytest.fixture(scope="module")
def visitors(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitors]:
    store = tmp_path_factory.mktemp("store")
    with issuing() as issuer:
        issuer.secret = token_hex()
        given: dict[str, Any] = {"oidc_teams": {"vision": "vision"}, "oidc_everyone": ["profs"]}
        given |= {"oidc_client_id": CLIENT, "oidc_client_secret": issuer.secret}
        with opened(shared_rig, store, oidc_issuer=issuer.url, **given) as api:
            made = Visitors(api, issuer)
            yield made
            made.close()


@pytest.mark.parametrize(("method", "path"), TABLE, ids=[f"{m} {p}" for m, p in TABLE])
def test_each_kind_of_visitor_comes_as_far_as_the_table_says(
    visitors: Visitors, method: str, path: str
) -> None:
    expected, request = TABLE[method, path]
    found = {
        kind: visitors.call(kind, method, *request(visitors.world)) for kind in visitors.guests
    }
    assert found == expected
