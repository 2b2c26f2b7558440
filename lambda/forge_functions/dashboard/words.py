"""The dashboard's texts. English sentences are the keys of the Hindi catalogue in `locales/`."""

import json
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import Depends, Request

COOKIE = "forge_language"
# Each language in its own name.
LANGUAGES = {"en": "English", "hi": "हिन्दी"}


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a page: the language, and the time from which ages are computed."""

    language: str
    now: datetime


_reader: ContextVar[Reader] = ContextVar("reader")


def reads(language: str, now: datetime | None) -> Reader:
    """Set the reader for the current context and return it."""
    reader = Reader(language, now or datetime.now(UTC))
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
    said = words(reader().language).get(text, text)
    return said.format(**values) if values else said


def n(one: str, many: str, count: int, **values: object) -> str:
    """Return the singular or the plural sentence, with `{count}` replaced."""
    return t(one if count == 1 else many, count=f"{count:,}", **values)


@cache
def words(language: str) -> dict[str, str]:
    """Return a language's sentences by the English ones, from all its files; none for English."""
    folder = files("forge_functions.dashboard") / "locales" / language
    if language == "en":
        return {}
    paths = (path for path in folder.iterdir() if path.name.endswith(".json"))
    return {k: v for path in paths for k, v in json.loads(path.read_text("utf-8")).items()}


def language(request: Request) -> str:
    """Return the language that a reader chose, or the first known one of the browser's."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    wished = request.headers.get("accept-language", "").lower().split(",")
    tags = [tag.partition(";")[0].strip().partition("-")[0] for tag in wished[:20]]
    return next((tag for tag in tags if tag in LANGUAGES), "en")


Language = Annotated[str, Depends(language)]
