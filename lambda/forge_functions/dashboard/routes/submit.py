"""The submit form."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import Form, Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.model.bundles import WRITTEN
from forge_schema.model.errors import ForgeError, JobInvalid
from forge_schema.model.job import IdempotencyConflict
from forge_schema.model.reading import LARGEST
from forge_schema.model.spec import KEYS, Key
from forge_schema.model.states import Target
from forge_schema.read.jobs import JobStory, recent_bundles

from forge_functions.dashboard.job_form import JobForm, faults_of
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import SubmitsByPage, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

UNITS = {"_s": "s", "_mb": "MiB"}
# What the command finds by itself, or has elsewhere: the code and the caller, and what is said of
# another field.
ELSEWHERE = {"command", "config_name", "bundle_digest", "owner", "idempotency_key", "max_nodes"}
router = LazyRouter()
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


@router.post("/submit/schedule")
def keep_schedule(request: Request, who: SubmitsByPage, shared: Shared, form: Filled) -> Response:
    """Have the job submitted at the times of a cron expression, instead of now."""
    asked, faults = form.request()
    # Each job of a schedule has a key of its own.
    owner, _ = asked.pop("owner", None), asked.pop("idempotency_key", None)
    if faults:
        return _shown(request, who, shared, form, faults)
    name, cron = form.schedule.strip(), form.cron.strip()
    timezone = form.timezone.strip() or "UTC"
    try:
        shared.service(who).keep_schedule(name, cron, asked, timezone=timezone, owner=owner)
    except JobInvalid as error:
        return _shown(request, who, shared, form, _of_schedule(error))
    except ForgeError as error:
        return _shown(request, who, shared, form, {"cron": f"{error.message}. {error.hint}"})
    return after(request, "/schedules", t("The schedule is kept."))


def _of_schedule(error: JobInvalid) -> dict[str, str]:
    """Return the faults by form field: those of the job lie within `spec`."""
    own = {"name": "schedule", "cron": "cron", "timezone": "timezone"}
    faults = {
        own[place]: str(fault["msg"])
        for fault in error.faults
        if (place := str(next(iter(fault["loc"]), ""))) in own
    }
    return faults or faults_of(error)


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
        templates=[template.name for template in templates],
        targets=[target.value for target in Target],
        accelerators=ACCELERATORS,
        **_line(form.request()[0]),
    )


def _bundles(shared: Services, owner: str, form: JobForm) -> list[Row]:
    bundles = recent_bundles(shared.database, owner)
    chosen = form.bundle_digest
    if chosen and all(row["bundle_digest"] != chosen for row in bundles):
        bundles.insert(0, {"bundle_digest": chosen, "job_id": None, "name": ""})
    return bundles


def _line(asked: dict[str, Any]) -> dict[str, Any]:
    return {"line": submit_line(asked), "unsaid": unsaid(asked)}


def submit_line(asked: Mapping[str, Any]) -> str:
    """Return the command to run in the folder with the code."""
    words = ["forge", "submit", "."]
    if "config_name" in asked:
        words.append(_word("--template", asked["config_name"]))
    for key in _typed():
        place = asked.get(key.table, {}) if key.table else asked
        # Unvalidated JSON may be anything.
        if isinstance(place, Mapping) and place.get(key.field) is not None:
            words += _words(key, place[key.field], asked)
    command = asked.get("command")
    return " ".join([*words, *(["--", shlex.join(command)] if command else [])])


def unsaid(asked: Mapping[str, Any]) -> list[str]:
    """Return the fields that have no command-line option."""
    return sorted(set(asked) - ELSEWHERE - {key.table or key.field for key in _typed()})


def _typed() -> Iterator[Key]:
    tables = {key.table for key in KEYS.values()}
    for key in KEYS.values():
        if key.option.typed and key.name not in {*tables, "idempotency_key"}:
            yield key


def _words(key: Key, value: object, asked: Mapping[str, Any]) -> list[str]:
    if isinstance(value, bool):
        return [key.names[0]] * value
    return [_word(key.names[0], word) for word in _values(key, value, asked)]


def _values(key: Key, value: object, asked: Mapping[str, Any]) -> list[object]:
    if isinstance(value, list):
        return value
    if key.name == "from_checkpoint":
        return [_checkpoint(value)]
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    # The command writes this list anew.
    if key.name == "requirements" and str(value).startswith(WRITTEN):
        return []
    most = f"..{asked['max_nodes']}" if key.name == "nodes" and "max_nodes" in asked else ""
    return [f"{value}{UNITS.get(key.unit, '')}{most}"]


def _checkpoint(source: object) -> str:
    # As above.
    parts = source if isinstance(source, dict) else {}
    place = f":{parts['attempt']}.{parts.get('number')}" if "attempt" in parts else ""
    return f"{parts.get('job_id')}{place}"


def _word(option: str, value: object) -> str:
    return f"{option} {shlex.quote(str(value))}"
