"""A reader's language, theme and way to tell times, stored in cookies; no login needed."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Request, Response
from fastapi.responses import RedirectResponse

from forge_functions.dashboard import csrf, words
from forge_functions.dashboard.page import THEME, THEMES, TIMES
from forge_functions.dashboard.session import local
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter()
YEAR_S = 31_536_000
CHOICES = {
    "language": (words.COOKIE, tuple(words.LANGUAGES)),
    "theme": (THEME, THEMES),
    "times": (TIMES, words.TIMES),
}


@router.post("/preferences")
def prefer(
    request: Request,
    shared: Shared,
    *,
    language: Annotated[str, Form()] = "",
    theme: Annotated[str, Form()] = "",
    times: Annotated[str, Form()] = "",
    to: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    """Store the choice and go back. Unknown values are ignored."""
    csrf.check_origin(request, shared)
    answer = RedirectResponse(local(to), HTTPStatus.SEE_OTHER)
    for name, chosen in (("language", language), ("theme", theme), ("times", times)):
        cookie, known = CHOICES[name]
        if chosen in known:
            secure = request.url.scheme == "https"
            answer.set_cookie(cookie, chosen, max_age=YEAR_S, secure=secure, samesite="lax")
    return answer
