"""The submit form."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.model.errors import ForgeError, JobInvalid
from forge_schema.model.job import IdempotencyConflict
from forge_schema.model.reading import LARGEST
from forge_schema.model.states import Target
from forge_schema.read.jobs import JobStory, recent_bundles

from forge_functions.dashboard.job_form import JobForm, faults_of
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.submit_line import submit_line, unsaid
from forge_functions.dashboard.visit.session import Visitor
from forge_functions.dashboard.visit.visitor import SubmitsByPage
from forge_functions.services import Services, Shared

router = APIRouter()
Again = Annotated[int | None, Query(alias="from", ge=1, le=LARGEST)]
Filled = Annotated[JobForm, Form()]
ACCELERATORS = ("any", "cpu", "cuda", "rocm", "mps")
INVALID = 422


@router.get("/submit")
def submit_form(
    request: Request, who: SubmitsByPage, shared: Shared, again: Again = None
) -> Response:
    """Show the form: empty, or filled in to submit a job again."""
    if again is None:
        return _shown(request, who, shared, JobForm.fresh())
    shared.service(who).job(again)
    asked = JobStory(shared.database, again).asked()
    return _shown(request, who, shared, JobForm.of(asked))


@router.post("/submit")
def submit(request: Request, who: SubmitsByPage, shared: Shared, form: Filled) -> Response:
    """Submit the job. The same form sent again leads to the same job."""
    asked, faults = form.request()
    if faults:
        return _shown(request, who, shared, form, faults)
    try:
        (job_id,) = shared.service(who).submit([asked])
    except JobInvalid as error:
        return _shown(request, who, shared, form, faults_of(error))
    except IdempotencyConflict:
        return _shown(request, who, shared, form.renewed(), {}, used=True)
    except ForgeError as error:
        field = "config_name" if error.code == "template_not_found" else ""
        return _shown(request, who, shared, form, {field: f"{error.message}. {error.hint}"})
    return after(request, f"/jobs/{job_id}")


@router.post("/submit/preview")
def preview(request: Request, who: SubmitsByPage, shared: Shared, form: Filled) -> Response:
    """Show the equivalent command, and what would be rejected."""
    asked, faults = form.request()
    if not faults:
        try:
            shared.service(who).whole([asked])
        except JobInvalid as error:
            faults = faults_of(error)
        except ForgeError as error:
            faults = {"": error.message}
    return page(request, who, "submit_preview.html", faults=faults, **_line(asked))


def _shown(
    request: Request,
    who: Visitor,
    shared: Services,
    form: JobForm,
    faults: dict[str, str] | None = None,
    *,
    used: bool = False,
) -> Response:
    owner = form.owner if who.admin and form.owner else who.owner
    templates = shared.service(who).templates(owner=owner)
    return page(
        request,
        who,
        "submit.html",
        INVALID if faults or used else 200,
        form=form,
        faults=faults or {},
        used=used,
        bundles=_bundles(shared, owner, form),
        templates=[one.name for one in templates],
        targets=[target.value for target in Target],
        accelerators=ACCELERATORS,
        **_line(form.request()[0]),
    )


def _bundles(shared: Services, owner: str, form: JobForm) -> list[Row]:
    found = recent_bundles(shared.database, owner)
    chosen = form.bundle_digest
    if chosen and all(row["bundle_digest"] != chosen for row in found):
        found.insert(0, {"bundle_digest": chosen, "job_id": None, "name": ""})
    return found


def _line(asked: dict[str, Any]) -> dict[str, Any]:
    return {"line": submit_line(asked), "unsaid": unsaid(asked)}
