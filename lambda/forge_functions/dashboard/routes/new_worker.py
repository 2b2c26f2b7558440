"""Creating a worker: its token is shown once, with the commands that use it."""

from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import Form, Request, Response
from forge_schema.model.fields import Word
from forge_schema.model.quantities import counted
from forge_schema.model.states import WorkerKind
from pydantic import StringConstraints

from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import RulesByPage, Visitor
from forge_functions.errors import Refused
from forge_functions.joining import package
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
LONGEST = 200
Name = Annotated[Word, StringConstraints(strip_whitespace=True)]
MOST_LABELS = 100


class Expiry(StrEnum):
    """The validity of a token."""

    NEVER = "never"
    DAY = "1 day"
    WEEK = "7 days"
    MONTH = "30 days"
    YEAR = "365 days"

    @property
    def lasts(self) -> timedelta | None:
        """The duration; None means no expiry."""
        return None if self is Expiry.NEVER else timedelta(days=int(self.value.split()[0]))


EXPIRIES = [expiry.value for expiry in Expiry]


@router.get("/workers/new")
def form(request: Request, who: RulesByPage) -> Response:
    """Show the form."""
    kinds = [kind.value for kind in WorkerKind]
    return page(request, who, "new_worker.html", kinds=kinds, expiries=EXPIRIES)


@router.post("/workers/new")
def create(  # noqa: PLR0917 - the framework passes each by name
    request: Request,
    who: RulesByPage,
    shared: Shared,
    name: Annotated[Name, Form()],
    kind: Annotated[WorkerKind, Form()] = WorkerKind.PERSISTENT,
    labels: Annotated[str, Form(max_length=10_000)] = "",
    expiry: Annotated[Expiry, Form()] = Expiry.NEVER,
    gives: Annotated[Literal["line", "token"], Form()] = "token",
) -> Response:
    """Create a worker and show its token, or the line for its machine, only this once."""
    if gives == "line":
        return line_page(request, who, shared, name, kind, labels, expiry)
    made = shared.service(who).admin.create_worker(
        name, ephemeral=kind is WorkerKind.EPHEMERAL, labels=labels_of(labels), lasts=expiry.lasts
    )
    return token_page(request, who, shared, int(made.id), name, made.text)


def line_page(  # noqa: PLR0917 - as above
    request: Request,
    who: Visitor,
    shared: Services,
    name: str,
    kind: WorkerKind,
    labels: str,
    expiry: Expiry,
) -> Response:
    """Show the line to paste on the machine. A line always expires."""
    made = shared.service(who).admin.invite_worker(
        name,
        url=shared.url(str(request.base_url)),
        digest=package().digest,
        ephemeral=kind is WorkerKind.EPHEMERAL,
        labels=labels_of(labels),
        lasts=expiry.lasts,
    )
    expires_at = who.now + timedelta(seconds=made.lasts_s)
    shown = page(request, who, "worker_line.html", name=name, made=made, expires_at=expires_at)
    shown.headers["Cache-Control"] = "no-store"
    return shown


def token_page(  # noqa: PLR0917 - what one page shows
    request: Request, who: Visitor, shared: Services, worker_id: int, name: str, text: str
) -> Response:
    """Show a token. It is shown only here, and must not be cached on the way."""
    url = shared.url(str(request.base_url))
    shown = page(
        request, who, "worker_token.html", worker_id=worker_id, name=name, token=text, url=url
    )
    shown.headers["Cache-Control"] = "no-store"
    return shown


def labels_of(text: str) -> dict[str, str]:
    """Parse `name=value` pairs, separated by commas, spaces or line breaks.

    Raises:
        Refused: 422 if one of them is invalid.
    """
    pairs = [word.partition("=") for word in text.replace(",", " ").split()]
    for name, sign, value in pairs:
        if not (name and sign and value) or len(name) > LONGEST or len(value) > LONGEST:
            raise _invalid(f"{name}{sign}{value} is not a label")
    if len(pairs) > MOST_LABELS:
        raise _invalid(f"a worker may have at most {counted(MOST_LABELS, 'label')}")
    return {name: value for name, _, value in pairs}


def _invalid(message: str) -> Refused:
    hint = "write zone=eu team=vision"
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", message, hint=hint)
