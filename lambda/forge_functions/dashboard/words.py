"""The dashboard's texts: English in the code, other languages in gettext files in `locales/`."""

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from io import BytesIO
from typing import Annotated

import polib
from fastapi import Depends, Request

COOKIE = "forge_language"
# How times read: how long ago, or exactly; a script turns UTC into the time of the browser's place.
TIMES = ("ages", "UTC", "local")
# Each language in its own name.
LANGUAGES = {"en": "English", "hi": "हिन्दी"}


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a page: the language, the time from which ages are computed, one of `TIMES`."""

    language: str
    now: datetime
    times: str = TIMES[0]


_reader: ContextVar[Reader] = ContextVar("reader")


def reads(language: str, now: datetime | None, times: str = TIMES[0]) -> Reader:
    """Set the reader for the current context and return it."""
    reader = Reader(language, now or datetime.now(UTC), times)
    _reader.set(reader)
    return reader


async def begun(request: Request) -> None:
    """Set the reader of a request. A FastAPI dependency, which runs in the request's task."""
    reads(language(request), None)


def reader() -> Reader:
    """Return the reader of the page being rendered."""
    return _reader.get(None) or Reader("en", datetime.now(UTC))


def t(text: str, **values: object) -> str:
    """Return a sentence in the reader's language, with each `{name}` replaced by a value."""
    # gettext keeps the file's header under the empty text.
    translated = text and _texts().gettext(text)
    return translated.format(**values) if values else translated


def n(text: str, many: str, count: int, **values: object) -> str:
    """Return the sentence in the form that the count takes, with `{count}` replaced."""
    return _texts().ngettext(text, many, count).format(count=f"{count:,}", **values)


def forms(text: str, many: str) -> str:
    """Return both forms of a sentence, of which a script chooses one and replaces `{count}`."""
    return "|".join(_texts().ngettext(text, many, count) for count in (1, 2))


def _texts() -> NullTranslations:
    return catalogue(reader().language)


@cache
def catalogue(language: str) -> NullTranslations:
    """Return a language's sentences by the English ones, which need no file."""
    if language == "en":
        return NullTranslations()
    written = files("forge_functions.dashboard") / "locales" / f"{language}.po"
    return GNUTranslations(BytesIO(polib.pofile(written.read_text("utf-8")).to_binary()))


def language(request: Request) -> str:
    """Return the language that a reader chose, or the first known one of the browser's."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    wished = request.headers.get("accept-language", "").lower().split(",")
    tags = [tag.partition(";")[0].strip().partition("-")[0] for tag in wished[:20]]
    return next((tag for tag in tags if tag in LANGUAGES), "en")


Language = Annotated[str, Depends(language)]
