"""What people keep about a job: its tags, its note and the archive; and that they delete it."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Request, Response
from forge_schema.model.fields import Text
from forge_schema.model.job import Acted, JobDetail
from forge_schema.service.caller import Forbidden

from forge_functions.dashboard.page import after
from forge_functions.dashboard.session import PageJob, SubmitsByPage, Visitor
from forge_functions.dashboard.words import t
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter(prefix="/jobs/{job_id}")
# Separated by spaces or commas.
TagNames = Annotated[Text, Form(max_length=4_000)]


@router.post("/annotate")
def annotate(
    request: Request,
    who: SubmitsByPage,
    job: PageJob,
    shared: Shared,
    *,
    add: TagNames = "",
    remove: TagNames = "",
    note: Annotated[Text, Form(max_length=20_000)] = "",
    noted: Annotated[bool, Form()] = False,
    archived: Annotated[bool | None, Form()] = None,
) -> Response:
    """Add or remove tags, archive the job or bring it back, or set its note if it is `noted`."""
    _check_owner(who, job)
    acted = shared.service(who).annotate(
        [job.job_id],
        # A form without a text does not say whether the note is to go.
        note=note.replace("\r\n", "\n") if noted else None,
        add=tag_names(add),
        remove=tag_names(remove),
        archived=archived,
    )
    _check_done(acted, job.job_id)
    return after(request, f"/jobs/{job.job_id}", t("Saved."))


@router.post("/delete")
def delete(request: Request, who: SubmitsByPage, job: PageJob, shared: Shared) -> Response:
    """Delete the job, which has ended, with all that it stored."""
    _check_owner(who, job)
    _check_done(shared.service(who).delete([job.job_id]), job.job_id)
    return after(request, "/jobs")


def tag_names(text: str) -> list[str]:
    """Return the tags in a text, each once."""
    return list(dict.fromkeys(text.replace(",", " ").split()))


def _check_owner(who: Visitor, job: JobDetail) -> None:
    if not who.changes(job.owner):
        raise Forbidden(f"job {job.job_id} is of {job.owner}: you may see it, and not change it")


def _check_done(acted: Acted, job_id: int) -> None:
    word, user = acted.became[job_id], acted.needed_by.get(job_id)
    refusals = {
        "unended": t("The job has not ended."),
        "full": t("The job would have too many tags."),
        "needed": t("The job {id} has not ended, and needs it.", id=user),
        "busy": t("Somebody else is changing the job. Try again."),
    }
    if word in refusals:
        raise Refused(HTTPStatus.CONFLICT, "job_left_alone", refusals[word])
