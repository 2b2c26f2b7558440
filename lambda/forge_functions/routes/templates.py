"""Templates: named job configs, to submit by name."""

from typing import Annotated

from fastapi import Path, Query
from forge_schema.database.pool import Row
from forge_schema.model.fields import Word
from forge_schema.model.job import Template
from forge_schema.queue.templates import Templates

from forge_functions.auth.caller import Caller, Submitter, Viewer, forbidden
from forge_functions.errors import problems
from forge_functions.items import Done, Items, Rows
from forge_functions.job_requests import JobConfig, check_config
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Services, Shared

router = Router(prefix="/api/queue/templates", tags=["templates"], responses=problems(401, 403))
ConfigName = Annotated[Word, Path()]
Owner = Annotated[Word | None, Query(description="whose; anybody's for an admin")]


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


@router.get("", response_model=Items[Template])
def list_templates(who: Viewer, shared: Shared, owner: Owner = None) -> Rows:
    """List an owner's templates, by name."""
    return {"items": _templates(shared, who, owner).listed()}


@router.get("/{name:path}", response_model=Template, responses=problems(404))
def template(who: Viewer, shared: Shared, name: ConfigName, owner: Owner = None) -> Row:
    """Return a template."""
    return _templates(shared, who, owner).get(name)


@router.put("/{name:path}", responses=problems(404))
def keep(
    who: Submitter, shared: Shared, name: ConfigName, config: Config, owner: Owner = None
) -> Done:
    """Keep a template under a name, in place of the one before."""
    templates = _templates(shared, who, owner)
    check_config(config.spec)
    templates.keep(name, config.spec)
    return Done()


@router.delete("/{name:path}", responses=problems(404))
def remove(who: Submitter, shared: Shared, name: ConfigName, owner: Owner = None) -> Done:
    """Remove a template."""
    _templates(shared, who, owner).remove(name)
    return Done()


def _templates(shared: Services, who: Caller, owner: str | None) -> Templates:
    if owner not in {None, who.owner} and not who.admin:
        raise forbidden("only an admin reads and writes the templates of another owner")
    return Templates(shared.database, owner=owner or who.owner, actor=who.actor)
