"""Parse filters of jobs: `state:running,queued owner:me name:res* tag:paper param:lr>0.01 oom`."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import MOMENTS_HINT, counted, moment
from forge_schema.model.states import JobKind, Reason, State, StateWord, WaitsFor, YesNo

KEYS = (
    *(
        "state",
        "owner",
        "team",
        "queue",
        "name",
        "label",
        "worker",
        "reason",
        "waits",
        "kind",
        "sweep",
    ),
    *("experiment", "param", "metric", "result", "tag", "id", "since", "archived"),
)
# Each of their terms must match.
REPEATED = ("label", "param", "metric", "result", "tag")
# Their values compare what a run was given, measured and found.
FIGURES = ("param", "metric", "result")
ENUMS: dict[str, type[StrEnum]] = {
    "state": StateWord,
    "reason": Reason,
    "waits": WaitsFor,
    "kind": JobKind,
    "archived": YesNo,
}
EXAMPLES = {
    "state": "running,queued",
    "since": "2d",
    "label": "zone=eu*",
    "param": "lr=0.1",
    "metric": "loss<0.2",
    "result": "accuracy>0.9",
    "tag": "paper",
    "id": "35",
}
ME = "me"
LENGTH = 1000
# PostgreSQL and Python know all times after it.
LEAST = datetime(1900, 1, 1, tzinfo=UTC)
_LABEL = re.compile(r"[^=]+(=.*)?", re.DOTALL)
_COMPARISON = re.compile(r"([^=<>]+)(?:(=|<=?|>=?)(.*))?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_ID = re.compile(r"[0-9]{1,18}")
# A word of them alone names jobs.
_IDS = re.compile(rf"{_ID.pattern}(,{_ID.pattern})*")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r'[^\s",]*')
_WORD = re.compile(r'[^\s"]+')
_SPACE = re.compile(r"\s*")
# Values made of these characters need no quotes.
_PLAIN = re.compile(r'[^\s",\\]+')
_PLAIN_WORD = re.compile(r'[^\s",\\:<>]+')


class FilterInvalid(ForgeError):
    """The text is not a valid filter; the fault is between `start` and `end`."""

    def __init__(self, message: str, *, hint: str, start: int = 0, end: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = end


@dataclass(frozen=True)
class FilterTerm:
    """One term and its position in the text. Without a key it is a word."""

    key: str | None
    values: tuple[str, ...]
    start: int
    end: int
    whole: bool = True


def quoted(text: str, *, free: bool = False) -> str:
    """Quote a value or a word for a filter, if necessary."""
    plain = _PLAIN_WORD if free else _PLAIN
    if plain.fullmatch(text) and not (free and _IDS.fullmatch(text)):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class Bound:
    """What a figure of a run must be: there, or like a glob, or compared with a number."""

    name: str
    sign: str = ""
    value: str = ""

    @classmethod
    def of(cls, text: str) -> "Bound | None":
        """Return what `lr=0.1`, `lr>0.01` or `lr` says; None if it says nothing."""
        match = _COMPARISON.fullmatch(text)
        bound = match and cls(match[1], match[2] or "", match[3] or "")
        compares_text = bound and bound.sign not in {"", "="} and bound.number is None
        return None if compares_text else bound

    @property
    def number(self) -> float | None:
        """The value as a number; None if it is none."""
        number = float(self.value) if _NUMBER.fullmatch(self.value) else None
        return None if number is None or not isfinite(number) else number


@dataclass(frozen=True)
class Filter:
    """A filter: a job's name must contain every word, and the job must match every term.

    Args:
        words: parts of the name, case-insensitive.
        terms: by key, the values of which one must match: globs, or states, reasons, kinds.
        repeated: terms with keys of which each must match, with the values of which it must match
            one: labels (`zone=eu*`, or `zone`), parameters, metrics and results (see `Bound`), and
            tags or globs of them.
    """

    words: tuple[str, ...] = ()
    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    repeated: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __str__(self) -> str:
        terms = [(key, self.terms[key]) for key in KEYS if key in self.terms]
        keyed = [
            f"{key}:{','.join(quoted(v) for v in values)}"
            for key, values in (*terms, *self.repeated)
        ]
        return " ".join([*keyed, *(quoted(word, free=True) for word in self.words)])

    def __bool__(self) -> bool:
        return bool(self.words or self.terms or self.repeated)

    def each(self, key: str) -> tuple[tuple[str, ...], ...]:
        """Return the values of each term of a key that may be repeated."""
        return tuple(values for of, values in self.repeated if of == key)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values given for a key; empty if any will do."""
        return self.terms.get(key, ())

    @property
    def states(self) -> frozenset[State]:
        """The states of which a job must have one; all if the filter names none."""
        values = self.values("state")
        return frozenset(state for word in values for state in _states(word)) or frozenset(State)

    def within(self, states: Collection[State]) -> "Filter | None":
        """Return the filter for jobs in some states only; None if none can match."""
        left = [state.value for state in State if state in states and state in self.states]
        return self.having("state", *left) if left else None

    def seen_by(self, owner: str) -> "Filter":
        """Return the filter with `owner:me` replaced by an owner."""
        values = self.values("owner")
        return self.having("owner", *(owner if name == ME else name for name in values))

    @property
    def archived(self) -> bool | None:
        """Whether a job must be archived. None if either will do, as for jobs named by their ids.

        Without a term about it, archived jobs are left out.
        """
        values = self.values("archived") or (() if self.values("id") else (YesNo.NO,))
        return YesNo.YES in values if len(values) == 1 else None

    def having(self, key: str, *values: str) -> "Filter":
        """Return the filter with other values for a key; without values, the key is removed."""
        others = {k: v for k, v in self.terms.items() if k != key}
        terms = {**others, key: tuple(dict.fromkeys(values))} if values else others
        return replace(self, terms=terms)

    def toggled(self, key: str, value: str) -> "Filter":
        """Return the filter with a value of a key added, or removed if it is there."""
        values = self.values(key)
        left = tuple(v for v in values if v != value)
        return self.having(key, *(left if value in values else (*values, value)))


def parse(text: str) -> Filter:
    """Parse a filter; `FilterInvalid` if it is malformed, or names an unknown key or value."""
    if len(text) > LENGTH:
        raise FilterInvalid(
            f"it has more than {counted(LENGTH, 'character')}",
            hint="shorten it",
            start=LENGTH,
            end=len(text),
        )
    words: list[str] = []
    values_by_key: dict[str, tuple[str, ...]] = {}
    repeated: list[tuple[str, tuple[str, ...]]] = []
    for term in _read(text):
        if term.key is None:
            words += _word(term, text)
        elif term.key in REPEATED:
            repeated.append((term.key, _checked(term)))
        elif term.key == "id":
            values_by_key["id"] = tuple(
                dict.fromkeys((*values_by_key.get("id", ()), *_checked(term)))
            )
        elif term.key in values_by_key:
            raise _wrong(term, f"{term.key} is given twice", f"write {term.key}:one,other")
        else:
            values_by_key[term.key] = _checked(term)
    repeated.sort(key=lambda of: REPEATED.index(of[0]))
    return Filter(tuple(words), values_by_key, tuple(repeated))


def _word(term: FilterTerm, text: str) -> tuple[str, ...]:
    """Return a part of the name, which nobody means who compares with a number."""
    (word,) = term.values
    bound = _COMPARISON.fullmatch(word)
    if bound and bound[2] not in {None, "="} and text[term.start] != '"':
        key, dot, rest = word.partition(".")
        # As `forge runs` names its columns.
        named = dot and key.removesuffix("s") in FIGURES
        hint = (
            f"write {key.removesuffix('s')}:{rest}"
            if named
            else (
                f"write metric:{word}, param:{word} or result:{word}; or quote a part of the name"
            )
        )
        raise _wrong(term, f"{word!r} compares, and a word is a part of the name", hint)
    return term.values


def _read(text: str) -> list[FilterTerm]:
    terms = list(_terms(text))
    if broken := next((term for term in terms if not term.whole), None):
        raise _wrong(broken, "a quote is not closed", 'write a quote inside as \\"')
    return terms


def _checked(term: FilterTerm) -> tuple[str, ...]:
    if term.key not in KEYS:
        hint = f'the keys are {", ".join(KEYS)}; quote text with a colon: "a:b"'
        raise _wrong(term, f"{term.key!r} is not a key{_meant(term.key or '', KEYS)}", hint)
    values = tuple(dict.fromkeys(term.values))
    if "" in values:
        raise _wrong(term, f"{term.key} lacks a value", f"write {term.key}:{_example(term.key)}")
    if kinds := ENUMS.get(term.key):
        words = [word.value for word in kinds]
        if unknown := next((v for v in values if v not in words), None):
            text = f"{unknown!r} is not a valid {term.key}{_meant(unknown, words)}"
            raise _wrong(term, text, f"choose one of {', '.join(words)}")
    if term.key == "since" and (len(values) > 1 or not _is_moment(values[0])):
        raise _wrong(term, f"{','.join(values)!r} is neither an age nor a time", MOMENTS_HINT)
    if term.key == "label" and not all(_LABEL.fullmatch(v) for v in values):
        raise _wrong(term, "a label lacks its name", "write label:zone=eu* or label:zone")
    if term.key in FIGURES and (wrong := next((v for v in values if not Bound.of(v)), None)):
        example = EXAMPLES[term.key]
        hint = f"write {term.key}:{example}, or {term.key}:{re.split('[=<>]', example)[0]}"
        compared = _COMPARISON.fullmatch(wrong)
        fault = (
            f"{compared[3]!r} is not a number"
            if compared and compared[3]
            else (f"{wrong!r} is not a name, or a name and a value")
        )
        raise _wrong(term, fault, hint)
    if term.key == "id" and (wrong := next((v for v in values if not _ID.fullmatch(v)), None)):
        raise _wrong(term, f"{wrong!r} is not the id of a job", "write id:35 or id:35,36")
    return values


def _states(word: str) -> Iterable[State]:
    return StateWord(word).states if word in set(StateWord) else (State(word),)


def _meant(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _example(key: str) -> str:
    return EXAMPLES.get(key, f"SOME-{key}")


def _is_moment(text: str) -> bool:
    try:
        return moment(text, datetime.now(UTC)) > LEAST
    except ValueError:
        return False


def _wrong(term: FilterTerm, message: str, hint: str) -> FilterInvalid:
    text = f"at character {term.start + 1}: {message}"
    return FilterInvalid(text, hint=hint, start=term.start, end=term.end)


def _terms(text: str) -> Iterator[FilterTerm]:
    """Split a filter into terms. An unterminated quote makes the last term not `whole`."""
    at = _skip(text, 0)
    while at < len(text):
        term = _term(text, at)
        yield term
        if not term.whole:
            return
        at = _skip(text, term.end)


def _term(text: str, start: int) -> FilterTerm:
    if match := _KEY.match(text, start):
        return _keyed(text, start, match)
    if text[start] == '"':
        value, end = _value(text, start)
        return FilterTerm(None, (value or "",), start, end, value is not None)
    word = _WORD.match(text, start)
    end = word.end() if word else start + 1
    bare = text[start:end]
    if _IDS.fullmatch(bare):
        return FilterTerm("id", tuple(bare.split(",")), start, end)
    return FilterTerm(None, (bare,), start, end)


def _keyed(text: str, start: int, match: re.Match[str]) -> FilterTerm:
    values, at = [], match.end()
    while True:
        value, at = _value(text, at)
        values.append(value or "")
        if value is None or not text.startswith(",", at):
            return FilterTerm(match[1].lower(), tuple(values), start, at, value is not None)
        at += 1


def _value(text: str, at: int) -> tuple[str | None, int]:
    """Return a value and its end; None if its quote is not closed."""
    if not text.startswith('"', at):
        bare = _BARE.match(text, at)
        return (bare[0], bare.end()) if bare else ("", at)
    match = _QUOTED.match(text, at)
    if match is None:
        return None, len(text)
    return re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL), match.end()


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
