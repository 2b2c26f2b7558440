"""A pod gets its own worker token for the service-account token that its cluster signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from support.http.api import Api, bearer, opened, problem
from support.http.http_worker import RawWorker, good
from support.http.issuer import ACCOUNT, Issuer, issuing
from support.http.server import server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx
    from support.queue.rig import Rig

ENROL = "/api/v1/workers/enrol"
POD = "forge-worker-cuda-x7f"
INVALID: dict[str, dict[str, Any]] = {
    "for somebody else": {"aud": ["https://kubernetes.default.svc"]},
    "over": {"exp": datetime.now(UTC) - timedelta(minutes=5)},
    "of another cluster": {"iss": "https://elsewhere.example"},
}
FOREIGN: dict[str, dict[str, Any]] = {
    "another account": {"sub": "system:serviceaccount:forge:default"},
    "another namespace": {"sub": "system:serviceaccount:ann:forge-worker"},
    "a person of that name": {"sub": ACCOUNT},
    "no pod": {"kubernetes.io": {"namespace": "forge"}},
    "no cluster's": {"kubernetes.io": None},
    "no uid": {"kubernetes.io": {"pod": {"name": POD}}},
    "a name that is too long": {"kubernetes.io": {"pod": {"name": "x" * 201, "uid": "1"}}},
}


@pytest.fixture
def cluster() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def api(rig: Rig, tmp_path: Path, cluster: Issuer) -> Iterator[Api]:
    settings = {"enrol_issuer": cluster.url, "enrol_accounts": ACCOUNT}
    with opened(rig, tmp_path / "store", **settings) as api:
        yield api


def asks(api: Api, token: str) -> httpx.Response:
    return api.caller(bearer(token)).call("POST", ENROL)


def enrolled(api: Api, token: str, name: str = POD) -> RawWorker:
    said = good(asks(api, token))
    return RawWorker(api, said["worker_id"], name, said["token"])


def test_a_pod_becomes_an_ephemeral_worker_of_its_name(api: Api, cluster: Issuer) -> None:
    worker = enrolled(api, cluster.pod_token(POD))
    said = worker.register()
    assert (said["worker_id"], said["name"], said["kind"]) == (worker.id, POD, "ephemeral")
    (made,) = api.rig.rows("SELECT actor, worker_id FROM event WHERE action = 'worker_created'")
    assert made == {"actor": f"pod:forge/{POD}", "worker_id": worker.id}


def test_a_pod_that_asks_again_is_the_same_worker_with_another_token(
    api: Api, cluster: Issuer
) -> None:
    first = enrolled(api, cluster.pod_token(POD))
    again = enrolled(api, cluster.pod_token(POD))
    assert again.id == first.id
    assert api.rig.count("worker") == 1
    problem(first.post("/register", first.machine()), 401, "unauthenticated")
    assert again.register()["worker_id"] == first.id


def test_two_pods_are_two_workers(api: Api, cluster: Issuer) -> None:
    one, two = (enrolled(api, cluster.pod_token(name), name) for name in ("one", "two"))
    assert one.id != two.id


def test_a_pod_is_never_given_the_worker_of_somebody_else(api: Api, cluster: Issuer) -> None:
    _, theirs = api.workers.create(POD)
    problem(asks(api, cluster.pod_token(POD)), 409, "name_taken")
    admins = RawWorker(api, 0, POD, theirs)
    assert admins.register()["name"] == POD


def test_a_pod_is_never_given_the_worker_of_an_earlier_pod_of_its_name(
    api: Api, cluster: Issuer
) -> None:
    enrolled(api, cluster.pod_token(POD))
    bound = {"pod": {"name": POD, "uid": "6ad0b1f0-0000-4000-8000-000000000000"}}
    later: dict[str, Any] = {"kubernetes.io": bound}
    problem(asks(api, cluster.pod_token(**later)), 409, "name_taken")


@pytest.mark.parametrize("claims", INVALID.values(), ids=INVALID)
def test_a_token_that_is_not_valid_here_is_refused(
    api: Api, cluster: Issuer, claims: dict[str, Any]
) -> None:
    problem(asks(api, cluster.pod_token(**claims)), 401, "unauthenticated")
    assert api.rig.count("worker") == 0


@pytest.mark.parametrize("claims", FOREIGN.values(), ids=FOREIGN)
def test_a_valid_token_of_no_pod_that_may_enrol_is_refused(
    api: Api, cluster: Issuer, claims: dict[str, Any]
) -> None:
    problem(asks(api, cluster.pod_token(**claims)), 403, "forbidden")
    assert api.rig.count("worker") == 0


def test_a_token_that_the_cluster_did_not_sign_is_refused(api: Api, cluster: Issuer) -> None:
    with issuing() as other:
        foreign = other.pod_token(iss=cluster.url)
    problem(asks(api, foreign), 401, "unauthenticated")
    problem(api.caller().call("POST", ENROL), 401, "unauthenticated")


def test_a_pods_token_opens_nothing_else(api: Api, cluster: Issuer) -> None:
    pod = api.caller(bearer(cluster.pod_token()))
    problem(pod.call("GET", "/api/v1/me"), 401, "unauthenticated")


def test_no_pod_enrols_unless_the_settings_say_so(
    rig: Rig, tmp_path: Path, cluster: Issuer
) -> None:
    with opened(rig, tmp_path / "store") as api:
        said = problem(asks(api, cluster.pod_token()), 403, "forbidden")
    assert "cannot enrol" in said
    assert cluster.asked == []


@pytest.mark.parametrize(
    "given",
    [
        {"enrol_issuer": "https://a.example"},
        {"enrol_accounts": "forge:forge-worker"},
        {"enrol_issuer": "https://a.example", "enrol_accounts": "forge-worker"},
        {"enrol_issuer": "https://a.example", "enrol_accounts": "forge:*"},
    ],
)
def test_settings_that_would_let_in_every_pod_or_no_pod_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"enrol[_-]accounts"):
        server_settings("postgresql://x", "file:///x", **given)


def test_a_pod_that_enrolled_and_never_came_is_forgotten(api: Api, cluster: Issuer) -> None:
    enrolled(api, cluster.pod_token(POD))
    api.workers.create("one-that-an-admin-made")
    api.rig.clock.advance(3_601)
    api.rig.tick.reap()
    assert [row["name"] for row in api.rig.rows("SELECT name FROM worker")] == [
        "one-that-an-admin-made"
    ]
