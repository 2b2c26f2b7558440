"""The audit trail as people would tell it: in words, with names, each kind once, newest first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.model.fields import Text
from forge_schema.model.reading import LARGEST
from forge_schema.read import audit
from forge_schema.read.audit import NEWEST, AuditFilter, AuditPlace, Page
from forge_schema.trail import in_words, rest_of
from pydantic import Field

from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import ReadsAll
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

# Who acts without being a person.
ITSELF, NOBODY = {"sweeper", "queue"}, "anonymous"
# Of the same, so much later one is told anew.
TOGETHER = timedelta(minutes=15)
# A page should have so many rows, for which so many more pages of actions are read at most.
FEW, MORE = 20, 4

Names = Mapping[tuple[str, str], str]
router = LazyRouter()
Part = Annotated[Text, Field(max_length=200), Query()]
Id = Annotated[str, Field(pattern=r"^\d{0,15}$"), Query()]
Before = Annotated[str | None, Query(pattern=r"^\d{1,18}\.\d{1,18}$")]


@dataclass(frozen=True)
class Told:
    """The same that happened once or more: the newest first, by the same actor."""

    acts: list[Row]
    who: str
    what: str
    rest: Mapping[str, Any]

    @property
    def newest(self) -> Row:
        """The last of them."""
        return self.acts[0]

    @property
    def oldest(self) -> Row:
        """The first of them."""
        return self.acts[-1]

    @property
    def place(self) -> str:
        """A name for the row that stays when another of the same happens."""
        return str(self.oldest.get("id") or f"job-{self.oldest.get('submitted')}")


def told(acts: Iterable[Row], names: Names) -> list[Told]:
    """Return actions in words, each where its newest is; those of the same kind are one."""
    found: list[Told] = []
    open_by: dict[tuple[str, ...], Told] = {}
    for act in acts:
        rest = rest_of(act["action"], act["detail"])
        one = Told([act], who(act["actor"], names), what(act, names), rest)
        key = (act["actor"], one.what, repr(one.rest))
        same = open_by.get(key)
        if same and same.oldest["at"] - act["at"] <= TOGETHER:
            same.acts.append(act)
            continue
        found.append(one)
        open_by[key] = one
    return found


def what(act: Row, names: Names) -> str:
    """Return what happened as a sentence."""
    fields = dict(act["detail"] or {})
    if "key" in fields:
        fields["key"] = names.get(("key", str(fields["key"])), fields["key"])
    return in_words(act["action"], fields, t)


def who(actor: str, names: Names) -> str:
    """Return who acted."""
    kind, _, name = actor.partition(":")
    if actor in ITSELF:
        return t("Forge itself")
    if actor == NOBODY:
        return t("somebody")
    return names.get((kind, name), name or actor)


@router.get("/events")
def events(
    request: Request,
    who: ReadsAll,
    shared: Shared,
    *,
    actor: Part = "",
    action: Part = "",
    job: Id = "",
    worker: Annotated[Text, Field(max_length=64), Query()] = "",
    before: Before = None,
) -> Response:
    """Show a page of actions. Empty filters are ignored."""
    place = AuditPlace.read(before) if before else NEWEST
    # The number of a removed worker is one, too.
    known = not worker or (worker.isdecimal() and int(worker) <= LARGEST)
    number = _id(worker) if known else int(shared.service(who).worker_of(worker).id)
    wanted = AuditFilter(actor or None, action or None, _id(job), number, place)
    shown = _page(shared, wanted)
    filters = {"actor": actor, "action": action, "job": job, "worker": worker}
    names = audit.names_of(shared.database, shown.acts)
    return page(
        request,
        who,
        "events.html",
        trail=shown,
        told=told(shown.acts, names),
        names=names,
        filters=filters,
        before=before,
    )


def _page(shared: Services, wanted: AuditFilter) -> Page:
    """Return a page of actions, with more of them while those of the same kind are few rows."""
    shown = audit.page(shared.database, wanted)
    for _ in range(MORE):
        if shown.before is None or shown.reached or len(told(shown.acts, {})) >= FEW:
            break
        more = audit.page(shared.database, replace(wanted, before=shown.before))
        shown = replace(more, acts=[*shown.acts, *more.acts])
    return shown


def _id(text: str) -> int | None:
    return int(text) if text else None
