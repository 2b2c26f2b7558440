"""The list of workers, with their status and GPUs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from forge_schema.model.fields import Text
from forge_schema.model.states import WorkerStatus
from forge_schema.read.fleet import Fleet

from forge_functions.dashboard.page import page
from forge_functions.dashboard.visit.visitor import SeesPages
from forge_functions.services import Shared

router = APIRouter()
MOST_WORDS = 10
Said = Annotated[Text, Query(max_length=500)]
# Forms also send empty fields.
Chosen = Annotated[WorkerStatus | None, Query()]


@router.get("/workers")
def workers(  # noqa: PLR0917 - the framework passes each by name
    request: Request,
    who: SeesPages,
    shared: Shared,
    q: Said = "",
    status: Chosen = None,
    after: Said | None = None,
) -> Response:
    """Show a page of the workers that match a filter, by name."""
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
    )


def models(gpus: list[dict[str, object]]) -> list[tuple[str, int]]:
    """Return the number of a machine's GPUs by model."""
    names = [str(gpu.get("name") or "GPU") for gpu in gpus]
    return [(name, names.count(name)) for name in dict.fromkeys(names)]
