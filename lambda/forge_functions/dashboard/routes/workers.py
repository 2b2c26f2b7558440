"""Workers: their list, and one with its description, jobs and history, and actions for admins."""

from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import Form, Path, Query, Request, Response
from forge_schema.access.names import with_secrets
from forge_schema.database.pool import Row
from forge_schema.model.fields import Text
from forge_schema.model.reading import LARGEST
from forge_schema.model.states import Phase, WorkerStatus
from forge_schema.model.worker import NoSuchWorker
from forge_schema.read.audit import names_of
from forge_schema.read.fleet import Fleet
from forge_schema.read.series import Span, use_over_time

from forge_functions.dashboard.history import History
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.routes.events import told
from forge_functions.dashboard.routes.new_worker import EXPIRIES, Expiry, token_page
from forge_functions.dashboard.session import RulesByPage, SeesPages
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter()
MOST_WORDS = 10
Said = Annotated[Text, Query(max_length=500)]
# Forms also send empty fields.
Chosen = Annotated[WorkerStatus | None, Query()]

WorkerId = Annotated[int, Path(ge=1, le=LARGEST)]
JobId = Annotated[int, Query(ge=0, le=LARGEST)]


@router.get("/workers")
def workers(  # noqa: PLR0917 - the framework passes each by name
    request: Request,
    who: SeesPages,
    shared: Shared,
    q: Said = "",
    status: Chosen = None,
    after: Said | None = None,
    over: Span = Span.DAY,
) -> Response:
    """Show a page of the workers that match a filter, by name, and the past of all."""
    fleet = Fleet(shared.database)

    def listed() -> object:
        words, statuses = q.split()[:MOST_WORDS], [status] if status else []
        return fleet.page(words=words, statuses=statuses, after=after)

    return page(
        request,
        who,
        "workers.html",
        q=q,
        status=status.value if status else "",
        statuses=[word.value for word in WorkerStatus],
        after=after,
        counts=fleet.counts,
        listed=listed,
        models=models,
        spans=list(Span),
        history=lambda: History(over, use_over_time(shared.database, over, now=who.now)),
    )


def models(gpus: list[dict[str, object]]) -> list[tuple[str, int]]:
    """Return the number of a machine's GPUs by model."""
    names = [str(gpu.get("name") or "GPU") for gpu in gpus]
    return [(name, names.count(name)) for name in dict.fromkeys(names)]


class Device(NamedTuple):
    """A GPU: the jobs that hold it, its last measurements, and why it is withheld, if it is."""

    gpu: dict[str, Any]
    jobs: list[Row]
    look: dict[str, Any]
    fault: object


@router.get("/workers/{worker_id:int}")
def worker(  # noqa: PLR0917 - the framework passes each by name
    request: Request,
    who: SeesPages,
    shared: Shared,
    worker_id: WorkerId,
    before: datetime | None = None,
    before_job: JobId = 0,
    over: Span = Span.DAY,
) -> Response:
    """Show one worker, with its attempts before a time and a job. Removed ones show history."""
    fleet = Fleet(shared.database)
    place = None if before is None else (_aware(before), before_job)
    past = {
        "attempts": lambda: fleet.attempts(worker_id, scope=who.scope, before=place),
        "events": lambda: told(acts := fleet.events(worker_id), names_of(shared.database, acts)),
    }
    try:
        there = fleet.worker(worker_id)
    except NoSuchWorker:
        former = fleet.former(worker_id)
        return page(request, who, "former_worker.html", worker=former, **past)
    (there,) = with_secrets(shared.database, [there], **who.view)
    return page(
        request,
        who,
        "worker.html",
        worker=there,
        expiries=EXPIRIES,
        devices=devices,
        jobs=lambda: fleet.jobs(worker_id),
        spans=list(Span),
        history=lambda: History(
            over, use_over_time(shared.database, over, now=who.now, worker_id=worker_id)
        ),
        **past,
    )


@router.post("/workers/{worker_id:int}/drain")
def drain(
    request: Request,
    who: RulesByPage,
    shared: Shared,
    worker_id: WorkerId,
    undo: Annotated[bool, Form()] = False,  # noqa: FBT002 - the framework passes it by name
) -> Response:
    """Ask a worker to finish its jobs and take no more, or withdraw the request."""
    shared.service(who).drain(worker_id, undo=undo)
    return after(request, f"/workers/{worker_id}")


@router.post("/workers/{worker_id:int}/token")
def rotate(
    request: Request,
    who: RulesByPage,
    shared: Shared,
    worker_id: WorkerId,
    expiry: Annotated[Expiry, Form()] = Expiry.NEVER,
) -> Response:
    """Replace a worker's token and show it once. The old one is invalid at once."""
    service = shared.service(who)
    name = service.worker_of(str(worker_id)).name
    text = service.admin.rotate_worker(worker_id, lasts=expiry.lasts)
    return token_page(request, who, shared, worker_id, name, text)


@router.post("/workers/{worker_id:int}/delete")
def delete(request: Request, who: RulesByPage, shared: Shared, worker_id: WorkerId) -> Response:
    """Delete a worker that is offline or never connected, and its token."""
    shared.service(who).admin.delete_worker(worker_id)
    return after(request, "/workers")


def devices(worker: Row, jobs: list[Row]) -> list[Device]:
    """Return the GPUs of a worker, from its heartbeat and otherwise from samples."""
    condition, faults = (_object(worker["condition"].get(name)) for name in ("gpus", "quarantine"))
    rows = []
    for gpu in worker["gpus"]:
        uuid = gpu.get("uuid", "")
        # A job that is only stored does not have its GPUs any more.
        holders = [
            job for job in jobs if uuid in job["devices"] and job["phase"] != Phase.FINISHING
        ]
        looks = [condition, *(_object(_object(job["used"]).get("gpus")) for job in holders)]
        look = next(filter(None, (_object(seen.get(uuid)) for seen in looks)), {})
        rows.append(Device(gpu, holders, look, faults.get(uuid)))
    return rows


def _object(value: object) -> dict[str, Any]:
    # A heartbeat may contain any JSON.
    return value if isinstance(value, dict) else {}


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)
