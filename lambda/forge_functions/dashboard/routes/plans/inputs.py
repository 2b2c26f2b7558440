"""Registered inputs: their names and sources."""

from typing import Annotated

from fastapi import Form, Request, Response
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Text
from forge_schema.model.job import RegisteredInput
from pydantic import BaseModel

from forge_functions.dashboard.formats import fault_of
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import FormWord, SeesPages, SubmitsByPage, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/inputs")
PAGE = "/inputs"
INVALID = 422


class TypedInput(BaseModel):
    """The fields of an input as typed."""

    name: Text = ""
    source: Text = ""


@router.get("")
def inputs(request: Request, who: SeesPages, shared: Shared) -> Response:
    """Show the visitor's own registered inputs."""
    return _shown(request, who, shared, TypedInput())


@router.post("/add")
def add(
    request: Request, who: SubmitsByPage, shared: Shared, form: Annotated[TypedInput, Form()]
) -> Response:
    """Register a source under a name that has none; the same source again changes nothing."""
    name, source = form.name.strip(), form.source.strip()
    kept = next((one for one in _listed(shared, who) if one.name == name), None)
    if kept is not None and kept.source != source:
        fault = t("There is an input of this name. Remove it first; jobs keep their source.")
        return _shown(request, who, shared, form, fault)
    try:
        shared.service(who).keep_input(name, source)
    except ForgeError as error:
        return _shown(request, who, shared, form, fault_of(error))
    return after(request, PAGE, t("The input is registered."))


@router.post("/remove")
def remove(request: Request, who: SubmitsByPage, shared: Shared, name: FormWord) -> Response:
    """Remove a registered input. Jobs that were submitted with it keep its source."""
    shared.service(who).remove_input(name)
    return after(request, PAGE, t("The input is removed."))


def _listed(shared: Services, who: Visitor) -> list[RegisteredInput]:
    return shared.service(who).inputs()


def _shown(
    request: Request, who: Visitor, shared: Services, form: TypedInput, fault: str = ""
) -> Response:
    status = INVALID if fault else 200
    listed = _listed(shared, who)
    return page(
        request, who, "inputs.html", status, path=PAGE, inputs=listed, form=form, fault=fault
    )
