"""Submitting jobs."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from forge_functions.auth.roles import AsSubmitter
from forge_functions.errors import problems
from forge_functions.items import Done
from forge_functions.job_requests import JobRequest
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/queue", tags=["jobs"], responses=problems(401, 403, 404))
LARGEST_BATCH = 10_000
EXAMPLE = {
    "name": "digits",
    "command": ["python", "train.py", "--epochs", "20"],
    "bundle_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "resources": {"gpus": 1, "memory_mb": 8192},
    "labels": {"zone": "eu*"},
    "idempotency_key": "digits-2026-11-21",
}


class NewJobs(Body):
    """Jobs, each complete or a config with changes; or one, without the list around it.

    Only an admin may set an owner.
    """

    jobs: Annotated[
        list[JobRequest],
        Field(
            min_length=1,
            max_length=LARGEST_BATCH,
            examples=[[EXAMPLE], [{"config_name": "nightly", "priority": 10}]],
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, said: Any) -> Any:  # noqa: ANN401 - any input
        return {"jobs": [said]} if isinstance(said, dict) and "jobs" not in said else said

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        named = handler(core)
        schema = handler.resolve_ref_schema(named)
        listed = dict(schema)
        schema.clear()
        schema |= {"anyOf": [listed, *listed["properties"]["jobs"]["items"]["oneOf"]]}
        return named


class Submitted(BaseModel):
    """The jobs' ids, in order."""

    job_ids: list[int]


@router.post("/submit", responses=problems(409))
def submit(service: AsSubmitter, new: NewJobs) -> Submitted:
    """Submit jobs, all of them or none.

    A repeat with the same idempotency keys returns the same ids and submits nothing.
    """
    return Submitted(job_ids=service.submit(new.jobs))


@router.post("/check")
def check(service: AsSubmitter, new: NewJobs) -> Done:
    """Reject what submit would reject, without storing it. Uploads may come later."""
    service.check(new.jobs)
    return Done()
