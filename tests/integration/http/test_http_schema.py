"""The OpenAPI document against the server and against the functions, by schemathesis.

`FORGE_TEST_SCHEMA_EXAMPLES=50 pytest tests/integration/http/test_http_schema.py` tries more, and
every bound.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.access.names import NameInvalid, check_person
from requests import Session
from support.cloud.lambda_events import functions
from support.http.api import opened
from support.http.http_worker import held
from support.http.server import listening, server_settings
from support.http.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemathesis import Case
    from support.queue.rig import Rig, Rigs

    AnyCase = Case[Any]
    Targets = tuple["Target", "Target"]

# Each tries every twelfth route, so that several test processes can share the work.
PARTS = 12

# Of the 2,700 bounds in a job, one in nine, and of the hundreds in the next largest bodies, one in
# three: each costs a whole request.
EACH = {
    "POST /api/v1/queue/submit": 9,
    "PATCH /api/v1/queue/jobs/{job_id}": 3,
    "POST /api/v1/workers/claim": 3,
    "POST /api/v1/workers/register": 3,
    "POST /api/v1/workers/job/{job_id}/status": 3,
}
# Wrong values are refused before the code of a route, by parameters and models that most routes
# share: each tries one in four, and routes after it the others.
WRONG = 4
if "FORGE_TEST_SCHEMA_EXAMPLES" in os.environ:
    EACH.clear()
    WRONG = 1

# A schema cannot say which there are.
KNOWN = (("reports", "by", "owner"), ("reports", "since", "7d"), ("queue/runs", "sort", "job_id"))
CRON = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
HOOK: dict[str, Any] = {"target": "https://hooks.example/", "kind": "slack"}
NOTIFICATION: dict[str, Any] = {**HOOK, "query": "", "ids": []}
NOTIFICATION |= {"smtp_url": "smtp://mail.example", "sender": "forge@mail.example"}
NOTIFICATION |= {"allow": ["10.0.0.0/8"]}
NOTIFICATION |= {"new_secret": False}  # only a webhook has one
NAMES, PEOPLE = {"name", "owner", "team"}, {"join", "leave"}


def of_coverage(case: AnyCase) -> bool:
    """Return whether a request tries a bound that the document names."""
    return case.meta is not None and case.meta.phase.name.value == "coverage"


def correct(body: dict[str, Any]) -> None:
    """Change what a schema cannot forbid."""
    for n, end in enumerate(body.get("ends", [])):
        end["job_id"] = n + 1  # no job ends twice
        # In lists of distinct objects, text has NUL in spite of `allow_x00`.
        end["detail"] = str(end.get("detail")).replace("\0", "")
    for job in (*body.get("jobs", []), body.get("spec")):
        if isinstance(job, dict):
            correct_job(job)
    body |= {name: said for name, said in CRON.items() if name in body}
    body |= {name: said for name, said in NOTIFICATION.items() if name in body}
    if "role" in body:
        correct_key(body)
    correct_names(body)


def correct_names(values: dict[str, Any]) -> None:
    """Change names that nobody could see or type, or that no folder can have."""
    for field in NAMES & values.keys():
        if isinstance(values[field], str):
            values[field] = name_of(values[field])
    for field in PEOPLE & values.keys():
        values[field] = [name_of(each) for each in values[field]]


def name_of(text: str) -> str:
    """Return a text as a name, or another name if it cannot be one."""
    try:
        check_person(text)
    except NameInvalid:
        return "ann"
    return text


def correct_job(job: dict[str, Any]) -> None:
    """Change what a schema cannot forbid in a job."""
    if job.get("max_nodes") is not None:
        job["nodes"] = 1  # not more than `max_nodes`


def correct_key(key: dict[str, Any]) -> None:
    """Have a key see a team's jobs, or everyone's, or all as an admin's, but one of these only."""
    if key.get("team") is not None:
        key |= {"role": "submitter", "everyone": False}
    elif key.get("role") == "admin":
        key["everyone"] = False


class Target:
    """Where the requests go, and the names that exist there."""

    def __init__(self, world: World, url: str) -> None:
        self.world = world
        self.url = url
        self.session = Session()
        # It would look for proxies in the environment at each request.
        self.session.trust_env = False
        self.callers = {"admin": world.admin(), "worker": world.holder.headers}
        self.grant, self.keys = world.lease()
        self.names: dict[str, list[Any]] = {
            "job_id": [world.job(), world.dead_job(), self.grant["job_id"]],
            "worker_id": [world.absent_worker() for _ in range(3)],
            "key_id": [world.spare_key() for _ in range(3)],
            "name": ["jobs", world.template(), world.schedule(), world.notification()],
            "delivery_id": [world.delivery()],
            "owner": ["ann", "bob", "root"],
        }

    def check(self, case: AnyCase) -> None:
        """Send a request, and have every check look at the answer."""
        self._aim(case)
        works = case.operation.path.startswith("/api/v1/workers/")
        kind = "worker" if works else "admin"
        case.call_and_validate(
            base_url=self.url, session=self.session, headers=self.callers[kind], timeout=60
        )

    def _aim(self, case: AnyCase) -> None:
        """Make well-formed requests name existing objects, now and then."""
        if case.meta is None or not case.meta.generation.mode.is_positive:
            return
        body: dict[str, Any] = case.body if isinstance(case.body, dict) else {}
        correct(body)
        correct_names(case.path_parameters)
        if case.operation.path == "/api/v1/queue/notifications/{name}" and HOOK.keys() & body:
            body |= HOOK  # both or neither
        for path, name, known in KNOWN:
            if path in case.operation.path and name in case.query:
                case.query[name] = known
        if of_coverage(case):
            return
        for name, there in self.names.items():
            if name in case.path_parameters:
                case.path_parameters[name] = there[len(str(case.body)) % len(there)]
        if case.operation.path.startswith("/api/v1/workers/job/"):
            case.path_parameters["job_id"] = self.grant["job_id"]
            body |= held(self.grant)
        if "boot_id" in body:
            body["boot_id"] = str(self.world.holder.boot_id)


@contextmanager
def both(rig: Rig, store: Path) -> Iterator[Targets]:
    """Open the server, and the functions behind a gateway, on one queue."""
    settings = server_settings(rig.url, store.as_uri())
    with (
        opened(rig, store, long_poll_s=0.05) as api,
        functions(settings) as lambdas,
        listening(lambdas) as url,
    ):
        world = World(api)
        yield Target(world, api.url), Target(world, url)


@pytest.fixture(scope="module")
def read_only(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    with both(shared_rig, tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.mark.parametrize("part", range(PARTS))
def test_the_server_and_the_functions_keep_to_their_document(
    part: int, read_only: Targets, rigs: Rigs, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    from support.http.document import ROUTES  # noqa: PLC0415  slow, and most processes do without

    for n, route in enumerate(ROUTES[part::PARTS]):
        with subtests.test(route):
            if route.startswith("GET "):
                keeps_to_document(route, read_only)
                continue
            # On a queue of its own.
            with rigs.lent() as rig, both(rig, tmp_path / str(n)) as targets:
                keeps_to_document(route, targets)


def keeps_to_document(route: str, targets: Targets) -> None:
    from support.http.document import ROUTES, try_route  # noqa: PLC0415  as above

    server, gateway = targets
    numbers = {True: count(), False: count(ROUTES.index(route))}

    def left_out(case: AnyCase) -> bool:
        assert case.meta is not None
        right = case.meta.generation.mode.is_positive
        return next(numbers[right]) % max(EACH.get(route, 1), 1 if right else WRONG) != 0

    def check(case: AnyCase) -> None:
        if of_coverage(case) and left_out(case):
            return
        # The functions have the same routes; they differ in how a request reaches them.
        server.check(case.derive())
        if not of_coverage(case):
            gateway.check(case.derive())

    try_route(route, check)
