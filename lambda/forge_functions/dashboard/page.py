"""Render a page: a template, or one live part of it, for one visitor."""

import json
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from forge_functions.dashboard import assets, words
from forge_functions.dashboard.formats import COUNTERS, FILTERS
from forge_functions.dashboard.session import Visitor
from forge_functions.errors import Refused

PART = "part"
# The digest of a part, in its answer and in the request for the next one.
PART_HEADER = "X-Part"
THEME, TIMES = "forge_theme", "forge_times"
THEMES = ("system", "light", "dark")


class Mark(NamedTuple):
    """A sign before a word, and the colour of both."""

    sign: str
    tone: str


UNKNOWN = Mark("\u00b7", "quiet")


MARKS = {
    # states of a job
    "held": Mark("\u2016", "quiet"),
    "queued": Mark("\u25cb", "wait"),
    "running": Mark("\u25b8", "live"),
    "succeeded": Mark("\u2713", "good"),
    "failed": Mark("\u2715", "bad"),
    "cancelled": Mark("\u2298", "quiet"),
    # verdicts of a test
    "passed": Mark("\u2713", "good"),
    "error": Mark("\u2715", "bad"),
    "skipped": Mark("\u2013", "quiet"),
    # states of a worker
    "connecting": Mark("\u2026", "wait"),
    "not connected yet": Mark("\u2026", "wait"),
    "idle": Mark("\u25cb", "good"),
    "busy": Mark("\u25b8", "live"),
    "constrained": Mark("\u25b3", "warn"),
    "draining": Mark("\u25bd", "warn"),
    "offline": Mark("\u2715", "quiet"),
    # messages
    "waiting": Mark("\u25cb", "wait"),
    "sent": Mark("\u2713", "good"),
    # findings
    "ok": Mark("\u2713", "good"),
    "failing": Mark("\u2715", "bad"),
    "unknown": Mark("?", "warn"),
    # queues
    "open": Mark("\u25b8", "good"),
    "paused": Mark("\u2016", "warn"),
    "none": Mark("\u2715", "warn"),
    # the sweeper, after an outage
    "holding": Mark("\u2016", "warn"),
}


def page(
    request: Request, who: Visitor | None, name: str, status: int = 200, /, **context: object
) -> Response:
    """Render a template, or with `?part=NAME` only its block of that name.

    A part that is what the browser has already is answered with 204, and leaves the page alone.
    One without forms is packed; those have the token that proves who sent them.

    Args:
        request: the request.
        who: the visitor; None before the login.
        name: the template's name.
        status: the answer's status.
        **context: the template's variables. Functions are called only by templates that need them.

    Raises:
        Refused: 404 if the template has no such part.
    """
    part = request.query_params.get(PART)
    if part is None:
        return whole(request, who, name, status, **context)
    template = environment().get_template(name)
    around = _around(request, who)
    text = _part(template, part, {**around, **context})
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    if request.headers.get(PART_HEADER) == digest:
        return HTMLResponse(status_code=HTTPStatus.NO_CONTENT)
    answer = HTMLResponse(text, status, headers={PART_HEADER: digest})
    secret = str(around["csrf"])
    return answer if secret and secret in text else assets.packed(request, answer)


def whole(
    request: Request, who: Visitor | None, name: str, status: int = 200, /, **context: object
) -> HTMLResponse:
    """Render a whole template, even if a part was requested."""
    template = environment().get_template(name)
    return HTMLResponse(template.render({**_around(request, who), **context}), status)


def after(request: Request, to: str, message: str = "") -> Response:
    """Answer a completed action: go to a page, or let the current page refresh itself.

    Args:
        request: the action's request.
        to: the path of the page to show.
        message: a sentence of the catalogue, shown briefly if the page stays.
    """
    if "hx-request" not in request.headers:
        return RedirectResponse(to, HTTPStatus.SEE_OTHER)
    if request.headers.get("hx-current-url", "").partition("?")[0].endswith(to):
        events = json.dumps(
            {"refresh": {}, "refresh-slowly": {}, "said": {"text": words.t(message)}}
        )
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Trigger": events})
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": to})


@cache
def environment() -> Environment:
    """Return the template environment."""
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
        t=words.t,
        n=words.n,
        forms=words.forms,
        asset=assets.address,
        live=_live,
        query=_query,
        marks=MARKS,
        counters=sorted(COUNTERS),
    )
    # A part is rendered without its template's imports.
    made.globals["ui"] = made.get_template("ui.html").module
    return made


def _around(request: Request, who: Visitor | None) -> dict[str, object]:
    language = words.language(request)
    theme = request.cookies.get(THEME, "")
    times = request.cookies.get(TIMES, "")
    times = times if times in words.TIMES else words.TIMES[0]
    words.reads(language, who.now if who else None, times)
    return {
        "times": times,
        "ways": words.TIMES,
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
def _live(context: Context, part: str, *, slowly: bool = False, rests_s: int = 0) -> Markup:
    """Return the attributes of the element around a block that refreshes itself.

    It rests for `rests_s` seconds after each time.
    """
    where = _query(context, **{PART: part})
    event = f"{'refresh-slowly' if slowly else 'refresh'} from:body"
    event += f" throttle:{rests_s}s" if rests_s else ""
    return Markup('id="{}" hx-get="{}" hx-trigger="{}" hx-swap="innerHTML" data-live').format(
        part, where, event
    )


@pass_context
def _query(context: Context, **changes: Any) -> str:  # noqa: ANN401 - any value of a query
    """Return this page's address with a changed query; None removes a parameter."""
    params = context["params"]
    pairs = [(k, v) for k, v in params.multi_items() if k not in changes and k != PART]
    pairs += [(k, str(v)) for k, v in changes.items() if v is not None]
    return f"{context['path']}?{urlencode(pairs)}" if pairs else str(context["path"])
