"""The server's OpenAPI document, and requests made from it by schemathesis.

Import it only where it is used: loading schemathesis and making the document takes seconds.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import schemathesis
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
from support.http.server import quick_app, server_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemathesis import Case
    from schemathesis.schemas import BaseSchema

    AnyCase = Case[Any]

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
EXAMPLES = int(os.environ.get("FORGE_TEST_SCHEMA_EXAMPLES", "3"))
DOCUMENT = quick_app(server_settings("postgresql://none", "file:///none")).openapi()
ROUTES = [
    f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods
]
# Their bodies have the same model of a job as that of `submit`, whose every bound is tried.
LIKE_SUBMIT = {
    "POST /api/v1/queue/check",
    "PUT /api/v1/queue/schedules/{name}",
    "PUT /api/v1/queue/templates/{name}",
}


def try_route(route: str, check: Callable[[AnyCase], None]) -> None:
    """Have `check` send each request that is made for a route."""
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
