"""The words of a filter: `key:value,"another value"`, and words without a key."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r'[^\s",]*')
_WORD = re.compile(r'[^\s"]+')
_SPACE = re.compile(r"\s*")
# What a value may have and need no quotes.
_PLAIN = re.compile(r'[^\s",\\]+')
_PLAIN_WORD = re.compile(r'[^\s",\\:]+')


@dataclass(frozen=True)
class Said:
    """One term, with its place in the text; without a key it is a word."""

    key: str | None
    values: tuple[str, ...]
    start: int
    end: int
    whole: bool = True


def quoted(text: str, *, free: bool = False) -> str:
    """Return a value, or a free word, as it is written in a filter."""
    plain = _PLAIN_WORD if free else _PLAIN
    if plain.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def terms(text: str) -> Iterator[Said]:
    """Take a text apart; a term with a quote that is not closed is not `whole`, and the last."""
    at = _skip(text, 0)
    while at < len(text):
        said = _term(text, at)
        yield said
        if not said.whole:
            return
        at = _skip(text, said.end)


def _term(text: str, start: int) -> Said:
    if found := _KEY.match(text, start):
        return _keyed(text, start, found)
    if text[start] == '"':
        value, end = _value(text, start)
        return Said(None, (value or "",), start, end, value is not None)
    word = _WORD.match(text, start)
    end = word.end() if word else start + 1
    return Said(None, (text[start:end],), start, end)


def _keyed(text: str, start: int, found: re.Match[str]) -> Said:
    values, at = [], found.end()
    while True:
        value, at = _value(text, at)
        values.append(value or "")
        if value is None or not text.startswith(",", at):
            return Said(found[1].lower(), tuple(values), start, at, value is not None)
        at += 1


def _value(text: str, at: int) -> tuple[str | None, int]:
    """Return a value and where it ends; None where its quote is not closed."""
    if not text.startswith('"', at):
        bare = _BARE.match(text, at)
        return (bare[0], bare.end()) if bare else ("", at)
    found = _QUOTED.match(text, at)
    if found is None:
        return None, len(text)
    return re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL), found.end()


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
