"""Single sign-on to the dashboard: the code flow with PKCE, and how its sessions end."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from forge_schema.model.admin import TeamChanges
from forge_schema.model.states import Role
from forge_schema.queue.limits import Limits
from pydantic import ValidationError
from structlog.testing import capture_logs
from support.http.api import bearer, good, opened
from support.http.guest import Guest
from support.http.issuer import AUDIENCE, CLIENT, Issuer, issuing
from support.http.server import server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

ROLES = {"ml-team": "submitter", "ml-ops": "admin", "guests": "viewer"}
GROUPED: dict[str, Any] = {
    "oidc_audience": AUDIENCE,
    "oidc_teams": {"ml-nlp": "nlp", "/ml/vision": "vision"},
}
SECRET = "between us: 100%"  # noqa: S105  of a test


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def api(rig: Rig, tmp_path: Path, issuer: Issuer) -> Iterator[Api]:
    issuer.secret = SECRET
    given = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    with opened(rig, tmp_path / "store", **given, oidc_roles=ROLES) as api:
        yield api


@pytest.fixture
def grouped(rig: Rig, tmp_path: Path, issuer: Issuer) -> Iterator[Api]:
    issuer.secret = SECRET
    given = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    given |= GROUPED
    with opened(rig, tmp_path / "store", **given) as api:
        yield api


def signing_on(guest: Guest, to: str = "/queues") -> str:
    """Click on the login page's link, and return where the issuer asks for a password."""
    assert "/login/sso?next=" in guest.page(f"/login?next={to}")
    answer = guest.http.get("/login/sso", params={"next": to})
    assert answer.status_code == 307, answer.text
    return answer.headers["location"]


def signed_on(api: Api, issuer: Issuer, **claims: Any) -> Guest:  # noqa: ANN401  claims of all types
    return Guest(api).sign_on(issuer, **claims)


def acts(api: Api, action: str) -> list[tuple[str, dict[str, Any]]]:
    rows = api.rig.rows("SELECT actor, detail FROM event WHERE action = %s ORDER BY id", action)
    return [(row["actor"], row["detail"]) for row in rows]


def test_a_person_logs_in_without_a_key(api: Api, issuer: Issuer) -> None:
    guest = Guest(api)
    location = signing_on(guest)
    said = {name: value[0] for name, value in parse_qs(urlsplit(location).query).items()}
    assert location.startswith(f"{issuer.url}/authorize?")
    assert (said["response_type"], said["code_challenge_method"]) == ("code", "S256")
    assert (said["client_id"], said["redirect_uri"]) == (CLIENT, f"{api.url}/login/sso/done")
    answer = guest.http.get(issuer.authorized(location, forge_role=["x", "ml-team"]))
    assert answer.headers["location"] == "/queues"
    assert "ann" in guest.page("/queues")
    assert guest.act("/preferences", theme="dark").status_code == 303
    ((actor, detail),) = acts(api, "login")
    assert (actor, detail["address"]) == ("oidc:ann", "127.0.0.1")
    guest.act("/logout")
    assert guest.http.get("/queues").status_code == 303
    assert acts(api, "logout") == [("oidc:ann", {"session": detail["session"]})]
    guest.close()


@pytest.mark.parametrize(("word", "statuses"), [
    ("guests", (200, 403, 403)), ("ml-team", (200, 200, 403)), ("ml-ops", (200, 200, 200)),
])  # fmt: skip
def test_the_issuers_roles_are_those_of_the_session(
    api: Api, issuer: Issuer, word: str, statuses: tuple[int, ...]
) -> None:
    guest = signed_on(api, issuer, forge_role=word)
    found = tuple(guest.http.get(path).status_code for path in ("/jobs", "/submit", "/keys"))
    assert found == statuses
    guest.close()


def test_an_admin_sees_a_session_and_ends_it(api: Api, issuer: Issuer) -> None:
    guest, root = signed_on(api, issuer, forge_role="ml-team"), api.key("root", Role.ADMIN)
    admin = Guest(api).login("eve", Role.ADMIN)
    page = admin.page("/keys")
    assert page.count("End session") == 2
    assert "oidc:ann" in page
    listed = root.get("/api/v1/admin/keys")["items"]
    (session,) = [key["id"] for key in listed if key["acts_for"] == "oidc:ann"]
    assert admin.act("/keys/revoke", key=session).headers["location"] == "/keys"
    assert guest.http.get("/queues").status_code == 303
    assert "oidc:ann" not in admin.page("/keys")
    guest.close()
    admin.close()


def test_forge_login_acts_for_the_person_until_an_admin_ends_it(api: Api, issuer: Issuer) -> None:
    guest, root = signed_on(api, issuer, forge_role="ml-team"), api.key("root", Role.ADMIN)
    api.rig.clock.advance(3600)
    said = {"verifier": "v" * 43, "name": "forge login on laptop"}
    code = bearer(guest.login_code("v" * 43))
    told = api.http.post("/login/terminal/key", json=said, headers=code).json()
    # As long as the browser's session, so that a role is never older than that.
    assert (told["owner"], told["role"], told["expires_in_s"]) == ("ann", "submitter", 39_600)
    ann = api.caller(bearer(told["token"]))
    assert ann.get("/api/v1/me")["actor"] == "oidc:ann"
    assert ann.call("GET", "/api/v1/admin/keys").status_code == 403
    assert ann.call("POST", "/api/v1/token", {}).status_code == 403
    assert ann.call("POST", "/login/link").status_code == 403
    guest.act("/logout")
    listed = root.get("/api/v1/admin/keys")["items"]
    (session,) = [key["id"] for key in listed if key["name"] == "forge login on laptop"]
    ann.get("/api/v1/me")
    good(root.call("DELETE", f"/api/v1/admin/keys/{session}"))
    assert ann.call("GET", "/api/v1/me").status_code == 401
    guest.close()


def test_sessions_that_are_over_are_forgotten(api: Api, issuer: Issuer) -> None:
    signed_on(api, issuer, forge_role="guests").close()
    api.rig.clock.advance(43_200 + 86_400 + 1)
    assert api.rig.count("api_key") == 1
    signed_on(api, issuer, forge_role="guests").close()
    assert api.rig.count("api_key") == 1


@pytest.mark.parametrize(
    "claims",
    [{"forge_role": "strangers"}, {"nonce": "another"}, {"aud": "another"}, {"sub": ""}],
    ids=["role", "nonce", "audience", "nobody"],
)
def test_a_person_whom_the_settings_do_not_know_has_no_session(
    api: Api, issuer: Issuer, claims: dict[str, str]
) -> None:
    guest = Guest(api)
    said = {"forge_role": "ml-team", **claims}
    answer = guest.http.get(issuer.authorized(signing_on(guest), **said))
    assert answer.status_code in {401, 403}
    assert guest.http.get("/queues").status_code == 303
    assert [detail["why"] for _, detail in acts(api, "login_refused")] == ["sign-on"]
    guest.close()


def test_a_code_is_good_for_the_browser_that_began_and_for_once(api: Api, issuer: Issuer) -> None:
    victim, attacker = Guest(api), Guest(api)
    back = issuer.authorized(signing_on(attacker), forge_role="ml-ops")
    assert victim.http.get(back).status_code == 401
    signing_on(victim)
    # Its own login is under way, and the state is another's.
    assert victim.http.get(back).status_code == 401
    assert attacker.http.get(back).status_code == 303
    signing_on(attacker)
    assert attacker.http.get(back).status_code == 401
    for guest in (victim, attacker):
        guest.close()


def test_an_issuer_that_is_away_is_told(api: Api, issuer: Issuer) -> None:
    issuer.answers.clear()
    guest = Guest(api)
    assert guest.http.get("/login/sso").status_code == 503
    guest.close()


def test_an_id_token_is_no_bearer_token(api: Api, issuer: Issuer) -> None:
    for audience in (CLIENT, "", None):
        token = issuer.token(aud=audience, forge_role="ml-ops")
        assert api.http.get("/api/v1/me", headers=bearer(token)).status_code == 401


def test_without_a_client_there_is_no_single_sign_on(shared_api: Api) -> None:
    guest = Guest(shared_api)
    assert "/login/sso" not in guest.page("/login")
    assert guest.http.get("/login/sso").status_code == 404
    guest.close()
    with pytest.raises(ValidationError, match="--oidc-client-id needs --oidc-issuer"):
        server_settings("postgresql://none", "file:///none", oidc_client_id="forge")


def team_of(api: Api, owner: str = "ann") -> str | None:
    (row,) = api.rig.rows("SELECT forge_team(%s) AS team", owner)
    return row["team"]  # type: ignore[no-any-return]  # a row's values are of any type


def test_groups_say_who_is_in_which_team(grouped: Api, issuer: Issuer) -> None:
    api = grouped
    api.rig.submit(owner="ben", name="of-ben")
    limits = Limits(api.rig.database, actor="user:root")
    limits.set_team("nlp", TeamChanges(join=["ben"]))
    limits.set_team("vision", TeamChanges())
    # One group is a text with many issuers; and the settings say which of several counts.
    for groups, team in (("ml-nlp", "nlp"), (["/ml/vision", "x", "ml-nlp"], "nlp"),
                         (["/ml/vision", "ML-NLP"], "vision")):  # fmt: skip
        guest = signed_on(api, issuer, groups=groups)
        assert team_of(api) == team
        assert ("of-ben" in guest.page("/jobs")) == (team == "nlp")
        assert "by single sign-on" in guest.page(f"/teams/{team}")
    # A session sees the team that its person is in now.
    earlier, later = guest, signed_on(api, issuer, groups=["ml-nlp"])
    assert "of-ben" in earlier.page("/jobs")
    later.close()
    # No groups are a word, and nothing about groups is none.
    for said in ({}, {"groups": None}, {"groups": [{"id": 7}]}, {"groups": {"overage": "src1"}}):
        api.rig.clock.advance(61)
        with capture_logs() as logged:
            signed_on(api, issuer, **said).close()
        assert team_of(api) == "nlp"
        assert [line["team"] for line in logged if line["event"] == "groups_unsaid"] == ["nlp"]
    with capture_logs() as logged:
        signed_on(api, issuer, sub="eve", groups=["ml/VISION"]).close()
    (near,) = [line for line in logged if line["event"] == "group_spelled_otherwise"]
    assert (near["group"], near["setting"]) == ("ml/VISION", "/ml/vision")
    assert team_of(api, "eve") is None
    signed_on(api, issuer, groups=[]).close()
    assert team_of(api) is None
    assert "of-ben" not in earlier.page("/jobs")
    assert earlier.http.get("/teams/nlp").status_code == 404
    trail = [(actor, said["joined"], said["left"]) for actor, said in acts(api, "team set")[2:]]
    moves = [(["ann"], []), (["ann"], []), (["ann"], []), ([], ["ann"])]
    assert trail == [("oidc:ann", *move) for move in moves]
    earlier.close()


def test_a_team_that_an_admin_chose_stays(grouped: Api, issuer: Issuer) -> None:
    api, limits = grouped, Limits(grouped.rig.database, actor="user:root")
    limits.set_team("vision", TeamChanges(max_gpus=4))
    signed_on(api, issuer, groups=["ml-nlp"]).close()
    for team in ("nlp", "audio"):
        limits.set_team(team, TeamChanges(join=["ann"]))
        for groups in (["/ml/vision"], []):
            signed_on(api, issuer, groups=groups).close()
            assert team_of(api) == team
    limits.set_team("audio", TeamChanges(leave=["ann"]))
    signed_on(api, issuer, groups=["/ml/vision"]).close()
    assert team_of(api) == "vision"
    # A team that an admin removed does not come back without its limits.
    limits.remove_team("vision")
    for _ in range(2):
        api.rig.clock.advance(61)
        with capture_logs() as logged:
            signed_on(api, issuer, groups=["/ml/vision"]).close()
        assert [line["team"] for line in logged if line["event"] == "team_unknown"] == ["vision"]
    assert "vision" not in {team["name"] for team in limits.teams()}
    # Nor does somebody stay in a team for another that there is not.
    limits.set_team("nlp", TeamChanges(max_gpus=4))
    for group, stays in (("ml-nlp", True), ("/ml/vision", False)):
        signed_on(api, issuer, groups=group).close()
        assert team_of(api) == ("nlp" if stays else None)


def test_a_group_sees_all_until_an_admin_chooses_a_team(
    rig: Rig, tmp_path: Path, issuer: Issuer
) -> None:
    rig.submit(owner="ben", name="of-ben")
    issuer.secret = SECRET
    given: dict[str, Any] = {"oidc_client_id": CLIENT, "oidc_client_secret": SECRET, **GROUPED}
    given["oidc_everyone"] = ["profs"]
    said: dict[str, Any] = {"sub": "eva", "forge_role": "viewer", "groups": ["ml-nlp", "profs"]}
    with opened(rig, tmp_path / "store", oidc_issuer=issuer.url, **given) as api:

        def seen(**claims: Any) -> list[bool]:  # noqa: ANN401  claims of all types
            caller = api.caller(bearer(issuer.token(**{**said, **claims})))
            jobs = caller.get("/api/v1/queue/jobs")["items"]
            return [bool(jobs), caller.call("GET", "/api/v1/admin/keys").status_code == 200]

        guest = signed_on(api, issuer, **said)
        assert "of-ben" in guest.page("/jobs")
        assert "of all owners" in guest.page("/keys")
        assert seen() == [True, True]
        # Only the group says so, as it is spelled, and only whom it is said of.
        for groups in (None, [], ["ml-nlp"], ["Profs"], "all", [{"id": "profs"}]):
            assert seen(groups=groups) == [False, False]
        assert seen(sub="dan", groups="profs") == [True, True]
        code = bearer(guest.login_code("v" * 43))
        login = api.http.post("/login/terminal/key", json={"verifier": "v" * 43}, headers=code)
        command = api.caller(bearer(login.json()["token"]))
        assert command.get("/api/v1/queue/jobs")["items"]
        limits = Limits(rig.database, actor="user:root")
        limits.set_team("vision", TeamChanges(join=["eva"]))
        assert (seen(), "of-ben" in guest.page("/jobs")) == ([False, False], False)
        assert not command.get("/api/v1/queue/jobs")["items"]
        assert guest.http.get("/keys").status_code == 403
        limits.set_team("vision", TeamChanges(leave=["eva"]))
        assert (seen(), "of-ben" in guest.page("/jobs")) == ([True, True], True)
        guest.close()


def test_an_older_token_takes_nobody_back(grouped: Api, issuer: Issuer) -> None:
    for team in ("nlp", "vision"):
        Limits(grouped.rig.database, actor="user:root").set_team(team, TeamChanges())
    now = time()
    old, new = (
        grouped.caller(bearer(issuer.token(iat=int(now - age), groups=groups)))
        for age, groups in ((30, "ml-nlp"), (10, "/ml/vision"))
    )
    for caller, team in ((old, "nlp"), (new, "vision"), (old, "vision"), (new, "vision")):
        assert caller.get("/api/v1/me")["owner"] == "ann"
        assert team_of(grouped) == team


def test_people_who_share_an_owner_do_not_take_turns(
    rig: Rig, tmp_path: Path, issuer: Issuer
) -> None:
    given = {**GROUPED, "oidc_issuer": issuer.url, "oidc_owner_claim": "lab"}
    with opened(rig, tmp_path / "store", **given) as api:
        for team in ("nlp", "vision"):
            Limits(rig.database, actor="user:root").set_team(team, TeamChanges())

        def caller(person: str, groups: Any, **said: Any) -> Any:  # noqa: ANN401  as the issuer says
            said = {"sub": person, "lab": "lab", "groups": groups, **said}
            return api.caller(bearer(issuer.token(**said))).get("/api/v1/me")

        for _ in range(2):
            assert caller("ann", "ml-nlp")["sees"] == ["lab"]
            caller("ben", "/ml/vision")
            assert team_of(api, "lab") == "nlp"
        caller("ann", "x")
        assert team_of(api, "lab") is None
        caller("ben", "/ml/vision")
        assert team_of(api, "lab") == "vision"
        # An earlier word of somebody who comes no more holds as long as a session lasts.
        caller("eve-cli", "ml-nlp", lab="eve")
        for hours, stays in ((11, True), (2, False)):
            api.rig.clock.advance(hours * 3600)
            caller("eve-web", [], lab="eve")
            assert team_of(api, "eve") == ("nlp" if stays else None)
        # Of tokens that live longer than that, the later one's stays.
        old = int(time()) - 24 * 3600
        for person, groups, iat, team in (("dan", "ml-nlp", old, "nlp"),
                                          ("deb", "/ml/vision", old + 1, "vision"),
                                          ("dan", "ml-nlp", old, "vision")):  # fmt: skip
            caller(person, groups, lab="two", iat=iat)
            assert team_of(api, "two") == team


def test_an_owner_whom_an_admin_could_not_have_join_is_in_no_team(
    rig: Rig, tmp_path: Path, issuer: Issuer
) -> None:
    given = {**GROUPED, "oidc_issuer": issuer.url, "oidc_owner_claim": "lab"}
    with opened(rig, tmp_path / "store", **given) as api:
        Limits(rig.database, actor="user:root").set_team("nlp", TeamChanges())
        for owner, status in (("a/b", 200), ("@nlp", 200), ("an\ud800n", 403), ("ann\u200d", 403)):
            token = issuer.token(sub=ascii(owner), lab=owner, groups=["ml-nlp"])
            with capture_logs() as logged:
                assert api.http.get("/api/v1/me", headers=bearer(token)).status_code == status
            told = [line["owner"] for line in logged if line["event"] == "owner_joins_no_team"]
            assert told == [owner] * (status == 200)
        assert rig.count("owner_quota WHERE team IS NOT NULL") == 0
