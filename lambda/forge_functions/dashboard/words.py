"""The dashboard's words: the ids are the English sentences, and files have them in Hindi."""

import json
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import Depends, Request

COOKIE = "forge_language"
# By the name that each has for itself.
LANGUAGES = {"en": "English", "hi": "हिन्दी"}


@dataclass(frozen=True, slots=True)
class Reader:
    """Whom a page is rendered for: their language, and the time by which ages are told."""

    language: str
    now: datetime


_reader: ContextVar[Reader] = ContextVar("reader")


def reads(language: str, now: datetime | None) -> Reader:
    """Say whom what follows in this context is rendered for, and return it."""
    reader = Reader(language, now or datetime.now(UTC))
    _reader.set(reader)
    return reader


async def begun(request: Request) -> None:
    """Have the routes know their reader; a FastAPI dependency, which runs in the request's task."""
    reads(language(request), None)


def reader() -> Reader:
    """Return whom a page is being rendered for."""
    return _reader.get(None) or Reader("en", datetime.now(UTC))


def t(text: str, **values: object) -> str:
    """Return a sentence in the reader's language; `{name}` in it stands for a value."""
    said = words(reader().language).get(text, text)
    return said.format(**values) if values else said


def n(one: str, many: str, count: int, **values: object) -> str:
    """Return the sentence for one or that for many, with `{count}` filled in."""
    return t(one if count == 1 else many, count=f"{count:,}", **values)


@cache
def words(language: str) -> dict[str, str]:
    """Return a language's sentences by the English ones, of all its files; English has none."""
    folder = files("forge_functions.dashboard") / "locales" / language
    if language == "en":
        return {}
    paths = (path for path in folder.iterdir() if path.name.endswith(".json"))
    return {k: v for path in paths for k, v in json.loads(path.read_text("utf-8")).items()}


def language(request: Request) -> str:
    """Return the language that a reader chose, or else the browser's first that is known."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    wished = request.headers.get("accept-language", "").lower().split(",")
    tags = [tag.partition(";")[0].strip().partition("-")[0] for tag in wished[:20]]
    return next((tag for tag in tags if tag in LANGUAGES), "en")


Language = Annotated[str, Depends(language)]
