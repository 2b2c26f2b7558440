"""The OpenAPI document against the server and against the functions, by schemathesis.

`FORGE_TEST_SCHEMA_EXAMPLES=50 pytest tests/integration/http/test_http_schema.py` tries more.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from forge_functions.server import whole_app
from requests import Session
from schemathesis.checks import load_all_checks
from schemathesis.config import (
    ChecksConfig,
    CoveragePhaseConfig,
    ExamplesPhaseConfig,
    GenerationConfig,
    HealthCheck,
    PhasesConfig,
    PositiveDataAcceptanceConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.config._checks import NegativeDataRejectionConfig, SimpleCheckConfig
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from support.cloud.lambda_events import functions
from support.http.api import opened
from support.http.http_worker import held
from support.http.server import listening, server_settings
from support.http.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemathesis import Case
    from schemathesis.schemas import BaseSchema
    from support.queue.rig import Rig

    AnyCase = Case[Any]
    Targets = tuple["Target", "Target"]

# A value at or over the document's limit on its length may exceed the limit on bodies.
REFUSED = ["400", "401", "403", "404", "405", "409", "413", "422"]
TAKEN = ["2xx", "401", "403", "404", "409", "413"]
CHECKS = ChecksConfig(
    # It sends nearly as many requests again; test_http_matrix.py has every kind of caller.
    ignored_auth=SimpleCheckConfig(enabled=False),
    negative_data_rejection=NegativeDataRejectionConfig(expected_statuses=REFUSED),
    positive_data_acceptance=PositiveDataAcceptanceConfig(expected_statuses=TAKEN),
)
load_all_checks()
EXAMPLES = int(os.environ.get("FORGE_TEST_SCHEMA_EXAMPLES", "4"))
DOCUMENT = whole_app(server_settings("postgresql://none", "file:///none")).openapi()


@cache
def described(*, coverage: bool) -> BaseSchema:
    """Return the document, to be tried with a few requests for each path.

    `coverage` also tries each bound that it names.
    """
    generation = GenerationConfig(
        max_examples=EXAMPLES,
        deterministic=True,
        # Text that JSON or a row cannot hold is tested elsewhere: the document does not cover it.
        allow_x00=False,
        codec="utf-8",
        with_security_parameters=False,
        no_shrink=True,
    )
    phases = PhasesConfig(
        # The document has no examples, which is found out at a third of a route's cost.
        examples=ExamplesPhaseConfig(enabled=False),
        coverage=CoveragePhaseConfig(enabled=coverage),
    )
    project = ProjectConfig(generation=generation, checks=CHECKS, phases=phases)
    config = SchemathesisConfig(
        suppress_health_check=[HealthCheck.all], seed=1, projects=ProjectsConfig(default=project)
    )
    return schemathesis.openapi.from_dict(DOCUMENT, config=config)


# A schema cannot say which there are.
CRON = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
NOTIFICATION = {"target": "https://hooks.example/", "kind": "slack", "query": "", "ids": []}
NOTIFICATION |= {"smtp_url": "smtp://mail.example", "sender": "forge@mail.example"}
# Their bodies have the same model of a job as that of `submit`, whose every bound is tried.
LIKE_SUBMIT = {
    "POST /api/v1/queue/check",
    "PUT /api/v1/queue/schedules/{name}",
    "PUT /api/v1/queue/templates/{name}",
}
ROUTES = [
    f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods
]


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


def correct_job(job: dict[str, Any]) -> None:
    """Change what a schema cannot forbid in a job."""
    if job.get("max_nodes") is not None:
        job["nodes"] = 1  # not more than `max_nodes`


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
            "name": ["job_status", world.template(), world.schedule(), world.notification()],
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
        for name, known in (("by", "owner"), ("since", "7d")):
            if "reports" in case.operation.path and name in case.query:
                case.query[name] = known  # one of the allowed words
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


@pytest.fixture
def targets(route: str, request: pytest.FixtureRequest) -> Iterator[Targets]:
    """Both targets, on a queue of the route's own unless it only reads."""
    if route.startswith("GET "):
        yield request.getfixturevalue("read_only")
        return
    with both(request.getfixturevalue("rig"), request.getfixturevalue("tmp_path")) as made:
        yield made


@pytest.mark.parametrize("route", ROUTES)
def test_the_server_and_the_functions_keep_to_their_document(route: str, targets: Targets) -> None:
    """Try one route of the document.

    Its requests are made here, not with all others as the tests are collected, which would take
    each test process half a minute and half a gigabyte.
    """
    server, gateway = targets

    def check(case: AnyCase) -> None:
        # The functions have the same routes; they differ in how a request reaches them.
        server.check(case.derive())
        if not of_coverage(case):
            gateway.check(case.derive())

    document = described(coverage=route not in LIKE_SUBMIT)
    operation = document.find_operation_by_label(route)
    assert operation is not None
    build_operation_test(
        config=document.config,
        operation=operation,
        test_func=check,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()
