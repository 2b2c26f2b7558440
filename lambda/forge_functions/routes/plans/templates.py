"""Templates: named job configs, to submit by name."""

from typing import Annotated

from fastapi import Path, Query
from forge_schema.model.fields import Word
from forge_schema.model.job import Template

from forge_functions.auth.roles import AsSubmitter, AsViewer
from forge_functions.errors import problems
from forge_functions.items import Done, Items
from forge_functions.job_requests import JobConfig
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/queue/templates", tags=["templates"], responses=problems(401, 403))
ConfigName = Annotated[Word, Path()]
Owner = Annotated[Word | None, Query(description="the owner; only an admin may name another")]


class Config(Body):
    """A job config: any fields of a job but its owner and its idempotency key."""

    spec: JobConfig

    model_config = Body.model_config | {
        "json_schema_extra": {
            "examples": [
                {"spec": {"name": "nightly", "command": ["make", "eval"], "queue": "night"}}
            ]
        }
    }


@router.get("")
def list_templates(service: AsViewer, owner: Owner = None) -> Items[Template]:
    """List an owner's job configs, by name."""
    return Items(items=service.templates(owner=owner))


@router.get("/{name:path}", responses=problems(404))
def template(service: AsViewer, name: ConfigName, owner: Owner = None) -> Template:
    """Return a job config."""
    return service.template(name, owner=owner)


@router.put("/{name:path}", responses=problems(404))
def keep(service: AsSubmitter, name: ConfigName, config: Config, owner: Owner = None) -> Done:
    """Store a job config under a name, replacing any previous one."""
    service.keep_template(name, config.spec, owner=owner)
    return Done()


@router.delete("/{name:path}", responses=problems(404))
def remove(service: AsSubmitter, name: ConfigName, owner: Owner = None) -> Done:
    """Remove a job config."""
    service.remove_template(name, owner=owner)
    return Done()
