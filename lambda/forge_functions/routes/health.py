"""The health of the server and its dependencies."""

from http import HTTPStatus
from typing import Literal

from fastapi import Request
from fastapi.responses import JSONResponse
from forge_schema.model.fields import Problem
from pydantic import BaseModel

from forge_functions.errors import answer
from forge_functions.health import CheckResult, Finding
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared
from forge_functions.settings import VERSION

router = LazyRouter(tags=["health"])


class Healthy(BaseModel):
    """Everything stands."""

    status: Literal["ok"] = "ok"
    version: str
    checks: list[Finding]


class Unhealthy(Problem):
    """The server is unhealthy; `checks` has the reasons."""

    checks: list[Finding]


@router.get(
    "/health",
    response_model=Healthy,
    responses={503: {"model": Unhealthy, "description": "Some check fails."}},
)
def health(request: Request, shared: Shared) -> Healthy | JSONResponse:
    """Check the database, its tables, the store, and whether the sweeper keeps up."""
    checks = shared.health.findings()
    failing = [check for check in checks if check.standing is CheckResult.FAILING]
    if not failing:
        return Healthy(version=VERSION, checks=checks)
    problem = Unhealthy(
        code="unhealthy",
        message="; ".join(f"{check.name}: {check.detail}" for check in failing),
        hint="the server's log has more",
        checks=checks,
    )
    return answer(request, HTTPStatus.SERVICE_UNAVAILABLE, problem)
