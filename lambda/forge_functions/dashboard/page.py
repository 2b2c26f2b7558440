"""How a page is made: a template, or one live part of it, for one visitor."""

import json
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from forge_functions.dashboard import assets, words
from forge_functions.dashboard.formats import FILTERS
from forge_functions.dashboard.marks import MARKS
from forge_functions.dashboard.visit.session import Visitor
from forge_functions.errors import Refused

PART = "part"
THEME = "forge_theme"
THEMES = ("system", "light", "dark")


def page(
    request: Request,
    who: Visitor | None,
    name: str,
    status: int = 200,
    /,
    **context: object,
) -> HTMLResponse:
    """Render a template, or with `?part=NAME` its block of that name alone.

    Args:
        request: what was asked for.
        who: for whom; None before the login.
        name: the template.
        status: the answer's status.
        **context: what the template shows; a function is called by the template that needs it.

    Raises:
        Refused: 404 when the template has no such part.
    """
    part = request.query_params.get(PART)
    if part is None:
        return whole(request, who, name, status, **context)
    template = environment().get_template(name)
    return HTMLResponse(_part(template, part, {**_around(request, who), **context}), status)


def whole(
    request: Request,
    who: Visitor | None,
    name: str,
    status: int = 200,
    /,
    **context: object,
) -> HTMLResponse:
    """Render a template, whatever part of it may have been asked for."""
    template = environment().get_template(name)
    return HTMLResponse(template.render({**_around(request, who), **context}), status)


def after(request: Request, to: str, said: str = "") -> Response:
    """Answer an act that was done: go to a page, or have the page that is shown refresh itself.

    Args:
        request: the act.
        to: the page to show, a path.
        said: what was done, told in passing where the page stays; one of the words' sentences.
    """
    if "hx-request" not in request.headers:
        return RedirectResponse(to, HTTPStatus.SEE_OTHER)
    if request.headers.get("hx-current-url", "").partition("?")[0].endswith(to):
        told = json.dumps({"refresh": {}, "refresh-slowly": {}, "said": {"text": words.t(said)}})
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Trigger": told})
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": to})


@cache
def environment() -> Environment:
    """Return what templates are read and filled by."""
    made = Environment(
        loader=PackageLoader("forge_functions.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.globals.update(
        t=words.t, n=words.n, asset=assets.address, live=_live, query=_query, marks=MARKS
    )
    # A part is rendered without what its template imports.
    made.globals["ui"] = made.get_template("ui.html").module
    return made


def _around(request: Request, who: Visitor | None) -> dict[str, object]:
    language = words.language(request)
    theme = request.cookies.get(THEME, "")
    words.reads(language, who.now if who else None)
    return {
        "path": request.url.path,
        "params": request.query_params,
        "who": who,
        "csrf": who.csrf if who else "",
        "language": language,
        "languages": words.LANGUAGES,
        "theme": theme if theme in THEMES else THEMES[0],
    }


def _part(template: Template, part: str, given: Mapping[str, object]) -> str:
    block = template.blocks.get(part)
    if block is None or part.startswith("_"):
        raise Refused(
            HTTPStatus.NOT_FOUND, "not_found", f"this page has no part {part!r}", hint="reload it"
        )
    return "".join(block(template.new_context(dict(given))))


@pass_context
def _live(context: Context, part: str, *, slowly: bool = False) -> Markup:
    """Return the attributes of the element around a block that is to be refreshed."""
    where = _query(context, **{PART: part})
    event = "refresh-slowly" if slowly else "refresh"
    return Markup(
        'id="{}" hx-get="{}" hx-trigger="{} from:body" hx-swap="innerHTML" data-live'
    ).format(part, where, event)


@pass_context
def _query(context: Context, **changes: Any) -> str:  # noqa: ANN401 - whatever a query holds
    """Return this page's address with another query; None takes a parameter out."""
    params = context["params"]
    pairs = [(k, v) for k, v in params.multi_items() if k not in changes and k != PART]
    pairs += [(k, str(v)) for k, v in changes.items() if v is not None]
    return f"{context['path']}?{urlencode(pairs)}" if pairs else str(context["path"])
