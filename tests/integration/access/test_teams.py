"""Teams: who sees the jobs of others, and changes none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import Client
from forge_client.errors import ClientError
from forge_schema.model.spec import owner_mark
from forge_schema.model.states import Role
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api, Caller

TEAMS, JOBS, SEEN = "/api/v1/admin/teams", "/api/v1/queue/jobs", "/api/v1/queue/teams"


@pytest.fixture
def root(api: Api) -> Caller:
    root = api.key("root", Role.ADMIN)
    root.call("PATCH", f"{TEAMS}/nlp", {"join": ["ann", "ben"]})
    root.call("PATCH", f"{TEAMS}/vision", {"join": ["cleo"]})
    return root


@pytest.fixture
def jobs(api: Api) -> dict[str, int]:
    return {owner: api.rig.submit(owner=owner, name=owner) for owner in ("ann", "ben", "cleo")}


def seen(caller: Caller) -> list[str]:
    return sorted(job["owner"] for job in caller.get(JOBS)["items"])


@pytest.mark.usefixtures("jobs")
def test_a_key_sees_its_team_as_it_is_now(api: Api, root: Caller) -> None:
    eva = api.key("eva", Role.VIEWER, team="nlp")
    assert seen(eva) == ["ann", "ben"]
    root.call("PATCH", f"{TEAMS}/nlp", {"leave": ["ben"]})
    root.call("PATCH", f"{TEAMS}/nlp", {"join": ["cleo"]})
    assert seen(eva) == ["ann", "cleo"]
    listed = {team["name"]: team["owners"] for team in root.get(SEEN)["items"]}
    assert listed == {"nlp": ["ann", "cleo"], "vision": []}
    root.call("DELETE", f"{TEAMS}/nlp")
    assert seen(eva) == []
    assert root.call("DELETE", f"{TEAMS}/nlp").status_code == 404


@pytest.mark.usefixtures("root")
def test_acts_on_many_jobs_leave_those_that_are_only_seen(api: Api, jobs: dict[str, int]) -> None:
    ben = api.key("ben", Role.SUBMITTER, team="nlp")
    assert seen(ben) == ["ann", "ben"]
    assert [of["owner"] for of in ben.get("/api/v1/admin/quotas")["items"]] == ["ann", "ben"]
    (queue,) = ben.get("/api/v1/admin/queues")["items"]
    assert (queue["name"], queue["waiting"]) == ("default", 2)
    answer = ben.post("/api/v1/queue/cancel", {"job_ids": [*jobs.values()]})
    assert (answer["cancelled"], answer["absent"]) == (1, 2)
    refused = ben.call("POST", f"{JOBS}/{jobs['ann']}/cancel")
    assert refused.status_code == 403
    assert "you may see it, and not change it" in refused.text
    assert ben.call("POST", f"{JOBS}/{jobs['cleo']}/cancel").status_code == 404


@pytest.mark.usefixtures("root")
def test_a_session_sees_what_its_key_sees(api: Api, jobs: dict[str, int]) -> None:
    guest = Guest(api).login("eva", Role.VIEWER, team="nlp")
    page = guest.page("/jobs")
    assert [f'href="/jobs/{job}"' in page for job in jobs.values()] == [True, True, False]
    assert "/cancel" not in guest.page(f"/jobs/{jobs['ann']}")
    guest.close()


def test_the_page_of_a_team_has_its_people_their_jobs_and_what_they_used(
    api: Api, root: Caller, jobs: dict[str, int]
) -> None:
    root.call("PATCH", f"{TEAMS}/a%26b", {"join": ["ann", "ben"], "gpu_hours_per_month": 8})
    api.rig.worker("vm-1").claim_one()
    for owner in ("ann", "ben"):
        api.key(owner, Role.SUBMITTER, team="a&b")
    guest = Guest(api).login("eva", Role.VIEWER, team="a&b")
    page = guest.page("/teams/a%26b")
    assert "0.0 of 8.0 GPU-hours" in page
    assert "/jobs?q=team%3Aa%26b%20state%3Arunning" in page
    assert f'href="/jobs/{jobs["ann"]}"' in guest.page("/jobs?q=team%3Aa%26b%20state%3Arunning")
    assert 'href="/teams/a%26b"' in guest.page("/teams")
    assert guest.http.get("/teams/vision").status_code == 404
    guest.close()
    with Client(url=api.url, api_key=api.keys.create("cem", Role.VIEWER, team="a&b")[1]) as client:
        team = client.team("a&b")
    assert [(one.owner, one.running, one.waiting, one.is_member) for one in team.members] == [
        ("ann", 1, 0, True), ("ben", 0, 1, True), ("cem", 0, 0, False), ("eva", 0, 0, False),
    ]  # fmt: skip
    assert [*team.members[0].roles] == ["submitter"]


def test_an_admin_manages_teams_and_limits_on_their_pages(api: Api) -> None:
    root, limits = Guest(api).login("root", Role.ADMIN), "/teams/limits"
    refused = root.act("/teams/join", name="nlp", owners="a/b")
    assert (refused.status_code, 'value="a/b"' in refused.text) == (422, True)
    assert root.act("/teams/join", name="a&b", owners="ann, ben").headers["location"] == "/teams"
    assert root.act("/teams/leave", name="a&b", owner="ben").headers["location"] == "/teams/a%26b"
    assert root.act("/teams/leave", name="none", owner="ben").status_code == 404
    given = {"of": "team", "name": "a&b", "gpu_hours_per_month": "8", "when_spent": "preempt"}
    wrong = root.act(limits, **given, max_jobs="two")
    assert (wrong.status_code, 'value="two"' in wrong.text) == (422, True)
    assert 'hx-get="/teams/a%26b?part=team"' in wrong.text
    assert root.act(limits, **given, max_jobs="2").headers["location"] == "/teams/a%26b"
    (kept,) = api.rig.rows("SELECT max_jobs, gpu_hours_per_month, when_spent FROM team")
    assert kept == {"max_jobs": 2, "gpu_hours_per_month": 8.0, "when_spent": "preempt"}
    for value, status in (("0", 422), ("2", 303), ("", 303)):
        done = root.act(limits, of="owner", name="ann", max_gpus="4", weight=value)
        assert done.status_code == status
    assert 'value="4"' in root.page("/teams?owner=ann")
    (kept,) = api.rig.rows("SELECT max_gpus, weight FROM owner_quota WHERE owner = 'ann'")
    assert kept == {"max_gpus": 4, "weight": 1.0}
    assert root.act("/teams/remove", name="a&b").headers["location"] == "/teams"
    assert api.rig.count("team") == 0
    ann = Guest(api).login("ann", Role.SUBMITTER)
    assert "4 GPUs" in ann.page("/teams")
    assert limits not in ann.page("/teams?owner=ann")
    for guest in (root, ann):
        guest.close()


def test_secrets_are_named_to_those_who_may_know(api: Api, root: Caller) -> None:
    marks = {"HF": "*", "ANN": f",{owner_mark('ann')},", "NLP": f",@{owner_mark('nlp')},"}
    marks["BOTH"] = f",{owner_mark('cleo')},{owner_mark('ann')},{owner_mark('nobody')},"
    labels = {f"forge.secret.{name}": mark for name, mark in marks.items()}
    api.rig.worker("gpu", labels={"zone": "eu", **labels})
    whole = {"ANN": ["ann"], "BOTH": ["cleo", "ann", "?"], "HF": ["*"], "NLP": ["@nlp"]}
    ann = {"ANN": ["ann"], "BOTH": ["ann"], "HF": ["*"], "NLP": ["@nlp"]}
    cleo = api.key("cleo", Role.SUBMITTER)
    for caller, seen in (
        (root, whole),
        (api.key("ann", Role.VIEWER), ann),
        (api.key("eva", Role.VIEWER, team="nlp"), ann),
        (cleo, {"BOTH": ["cleo"], "HF": ["*"]}),
    ):
        (listed,) = caller.get("/api/v1/workers")["items"]
        one = caller.get("/api/v1/workers/gpu")
        assert listed["secrets"] == one["secrets"] == seen
        named = {name for name in one["labels"] if name.startswith("forge.secret.")}
        assert named == {f"forge.secret.{name}" for name in seen}
    assert owner_mark("ann") not in str(cleo.get("/api/v1/workers/gpu"))
    guest = Guest(api).login("cleo", Role.SUBMITTER)
    page = guest.page(f"/workers/{one['id']}")
    assert ("BOTH: cleo" in page, "NLP" in page) == (True, False)
    guest.close()


def test_who_leaves_sees_the_team_no_more_and_its_other_viewers_do(api: Api, root: Caller) -> None:
    ann, ben = (api.key(owner, Role.SUBMITTER, team="nlp") for owner in ("ann", "ben"))
    eva = api.key("eva", Role.VIEWER, team="nlp")
    root.call("PATCH", f"{TEAMS}/vision", {"join": ["eva"]})
    root.call("PATCH", f"{TEAMS}/vision", {"join": ["ann"]})
    root.call("PATCH", f"{TEAMS}/nlp", {"leave": ["ben"]})
    root.call("PATCH", f"{TEAMS}/nlp", {"join": ["cem"]})
    job = api.rig.submit(owner="cem")
    found = [who.call("GET", f"{JOBS}/{job}").status_code for who in (ann, ben, eva)]
    assert found == [404, 404, 200]
    # Whom an admin moves sees the new team with the key; the trail tells whence.
    api.rig.submit(owner="cleo")
    assert (seen(ann), seen(ben)) == (["cleo"], [])
    said = "detail -> 'moved_from' AS moved"
    moves = api.rig.rows(f"SELECT {said} FROM event WHERE action = 'team set' ORDER BY at, id")
    assert [row["moved"] for row in moves if row["moved"]] == [{"ann": "nlp"}]
    # Not even if a team gets the name again: nobody has given these keys that one.
    root.call("DELETE", f"{TEAMS}/nlp")
    root.call("PATCH", f"{TEAMS}/nlp", {"join": ["cem"]})
    assert eva.call("GET", f"{JOBS}/{job}").status_code == 404


def test_a_key_has_one_view_and_a_team_that_exists(root: Caller) -> None:
    def refused(**fields: object) -> tuple[int, str]:
        answer = root.call("POST", "/api/v1/admin/keys", {"owner": "eva"} | fields)
        return answer.status_code, answer.json()["code"]

    assert refused(role="viewer", team="nowhere") == (404, "team_not_found")
    assert refused(role="admin", team="nlp") == (422, "option_invalid")
    for name in ("bad/name", "..", "@nlp"):
        assert refused(role="viewer", owner=name) == (422, "option_invalid")
    assert refused(role="viewer", team="nlp", everyone=True) == (422, "option_invalid")


@pytest.fixture
def professor(api: Api, root: Caller) -> Iterator[Client]:
    made = root.post("/api/v1/admin/keys", {"owner": "prof", "role": "viewer", "everyone": True})
    with Client(url=api.url, api_key=made["token"]) as client:
        yield client


def test_who_sees_everyone_reads_all_and_changes_nothing(
    professor: Client, jobs: dict[str, int]
) -> None:
    assert {job.owner for job in professor.jobs()} == set(jobs)
    job = professor.job(jobs["ann"])
    assert (job.id, job.status().owner) == (jobs["ann"], "ann")
    assert job.explain().owner == "ann"
    assert [team.name for team in professor.teams()] == ["nlp", "vision"]
    keys = professor.keys()
    assert sorted(key.owner for key in keys) == ["prof", "root"]
    assert "queue_demand" in professor.reports()
    with pytest.raises(ClientError, match="needs the role"):
        job.cancel()
    with pytest.raises(ClientError, match="needs the role"):
        professor.change_team("nlp", join=["prof"])


def test_queries_groups_and_reports_know_teams(professor: Client, jobs: dict[str, int]) -> None:
    assert {job.owner for job in professor.jobs("team:nlp")} == {"ann", "ben"}
    assert {job.owner for job in professor.jobs("team:n*,vision owner:cleo")} == {"cleo"}
    assert [(group.name, group.runs) for group in professor.run_groups(by="team")] == [
        ("vision", 1),
        ("nlp", 2),
    ]
    counted = professor.report("jobs", by=["team"])
    assert {row["team"]: row["jobs"] for row in counted} == {"nlp": 2, "vision": 1}
    assert professor.job(jobs["ann"]).status().team == "nlp"
