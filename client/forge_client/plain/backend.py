"""A backend that asks plainly, verb by verb, and leaves what is not plain to the whole client."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from os.path import dirname, join
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from forge_schema.model import reading
from forge_schema.model.reading import FILES, LogPlaces, id_of, report_rows
from forge_schema.model.states import StateWord

from forge_client.plain.place import ServerPlace, refuse_proxied
from forge_client.plain.wire import ANSWER_S, NotPlain, Wire, quoted

if TYPE_CHECKING:
    from forge_client.backend import Backend


Declared: TypeAlias = Mapping[str, Any]
"""A verb, a parameter or a field; only what is so is there.

A verb has a `method`, a `path` and `parameters`. Its answer `takes` a field of what the server
says, and makes it, or each in it, into a `kind`, which may be `of_a_job`; or it is `nothing`. A
parameter has a `name`, and `where` it stands in a request, as a `field` of another name, `inside`
another one; `own` is the client's owner by default. A record has `fields`, each of a `kind`, maybe
`hidden` from people, and the `reading` of what they say.
"""
Packed: TypeAlias = Any
"""A `project.bundle.Bundle`, which stands above."""

BUNDLES, REPORTS = "/api/v1/bundles", "/api/v1/reports"
STATUSES = "/api/v1/queue/statuses"
# In bytes; a larger one is not read into memory as a whole.
LARGEST_BUNDLE = 8 << 20
# Besides `NotPlain`: the answer is not what this version of Forge knows.
UNKNOWN = (KeyError, ValueError, TypeError, AttributeError)


@cache
def table() -> Mapping[str, Mapping[str, Declared]]:
    """Return the `verbs` and the `records`, by their names."""
    with open(join(dirname(__file__), "verbs.json"), encoding="utf-8") as file:
        rows: dict[str, dict[str, Declared]] = json.load(file)
    return rows


class PlainRow:
    """A record with the fields that its model declares; others are left out.

    Raises:
        KeyError: a field is missing.
        ValueError: a server of another version says what no client of this one knows.
    """

    fields: ClassVar[Mapping[str, Declared]]

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        for name, field in self.fields.items():
            known = name in row or "default" not in field
            vars(self)[name] = made(row[name] if known else field["default"], field)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, vars(self)[name]) for name in self.fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # as of what has no order to be kept in

    def as_json(self, *, whole: bool = False) -> dict[str, Any]:
        """Return what JSON shows of it, as its model does; a `whole` one is inside another."""
        return {
            name: self._row.get(name) if field.get("kind") == "time" else _json(vars(self)[name])
            for name, field in self.fields.items()
            if whole or "hidden" not in field
        }


def made(value: Any, declared: Declared) -> Any:  # noqa: ANN401 - any JSON
    """Return a value, or each in a list, as its kind."""
    kind = declared.get("kind")
    if kind is None or value is None:
        return value
    if isinstance(value, list):
        return [made(item, declared) for item in value]
    match kind:
        case "time":
            return datetime.fromisoformat(value)
        case "state":
            return StateWord(value)
        case _:
            return _record(kind)(value)


@cache
def _record(name: str) -> type[PlainRow]:
    declared = table()["records"][name]
    bases = [getattr(reading, declared["reading"])] if "reading" in declared else []
    return type(name, (*bases, PlainRow), {"fields": declared["fields"]})


def _json(value: Any) -> Any:  # noqa: ANN401 - any field
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value.as_json(whole=True) if isinstance(value, PlainRow) else value


class PlainVerbs(LogPlaces):
    """The verbs that `Service` declares, and the transfers of `Backend` as far as they are plain.

    Args:
        owner: whose jobs are one's own; None is the key's owner.
    """

    def __init__(self, wire: Wire, owner: str | None) -> None:
        self._wire, self._owner = wire, owner
        self._stores: dict[str, Wire] = {}

    def close(self) -> None:
        """Close the connections."""
        for wire in (self._wire, *self._stores.values()):
            wire.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in table()["verbs"]:
            raise AttributeError(name)
        return partial(self._do, name)

    def _do(self, name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the verb
        verb = table()["verbs"][name]
        given = _bound(verb["parameters"], args, kwargs)
        path: str = verb["path"]
        sent: dict[str, dict[str, Any]] = {"query": {}, "body": {}}
        for parameter in verb["parameters"]:
            value, field = given[parameter["name"]], parameter.get("field", parameter["name"])
            if "own" in parameter:
                value = value or self._owner
            if parameter["where"] == "path":
                before, _, rest = path.partition(f"{{{field}")
                path = f"{before}{quoted(str(value))}{rest.partition('}')[2]}"
            elif parameter["where"] == "whole":
                sent["body"][parameter["inside"]] = [*value]
            elif value is not None:
                sent[parameter["where"]][field] = value
        has_body = any(field["where"] in {"body", "whole"} for field in verb["parameters"])
        body = sent["body"] if has_body else None
        answer = self._wire.json(verb["method"], path, sent["query"], body)
        return None if "nothing" in verb else _value(verb, answer, given)

    def job_id(self, handle: str) -> int:
        known = id_of(handle)
        job_id: int = self._do("job_id", handle) if known is None else known
        return job_id

    def statuses(self, job_ids: Sequence[int]) -> dict[int, PlainRow]:
        # What a job in a list has besides, these do without.
        items = self._wire.json("POST", STATUSES, body={"job_ids": [*job_ids]})["items"]
        return {row.job_id: row for row in made(items, {"kind": "ListedJob"})}

    def artifacts(self, job_id: int) -> list[PlainRow]:
        rows: list[PlainRow] = self._do("artifacts", job_id)
        if len(rows) >= FILES:
            raise NotPlain("there are more pages")
        return rows

    def report(
        self, name: str, *, since: str | None, until: str | None, by: Sequence[str], count: int
    ) -> list[dict[str, Any]]:
        asked = {"since": since, "until": until, "by": ",".join(by) or None, "count": count}
        return report_rows(self._wire.json("GET", f"{REPORTS}/{quoted(name)}", asked)["items"])

    def has_bundle(self, bundle: Packed) -> bool:
        return bool(self._offer(bundle)["stored"])

    def upload_bundle(self, bundle: Packed, progress: Callable[[int], object]) -> None:
        if bundle.size > LARGEST_BUNDLE:
            raise NotPlain("it is not sent at once")
        offer = self._offer(bundle)
        if not offer["stored"]:
            store, target = self._store_of(offer["url"])
            store.ask(offer["method"], target, bundle.path.read_bytes(), offer["headers"])
        progress(bundle.size)

    def _offer(self, bundle: Packed) -> Any:  # noqa: ANN401 - JSON
        wanted = {"digest": bundle.digest, "bytes": bundle.size}
        return self._wire.json("POST", BUNDLES, body=wanted)

    def log_bytes(self, chunk: Any) -> bytes:  # noqa: ANN401 - a `ChunkRow`, read as a `LogChunk`
        # Only what reads a log needs hashes.
        from forge_client.plain.unpacking import unpacked  # noqa: PLC0415

        store, target = self._store_of(chunk.url)
        return unpacked(chunk, store.ask("GET", target))

    def _store_of(self, url: str) -> tuple[Wire, str]:
        """Return the connection for a signed URL, which never gets the key, and what to ask it."""
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        refuse_proxied(host)
        store = self._stores.setdefault(host, Wire(f"{scheme}://{host}", {}))
        return store, slash + path


def with_keys(specs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return jobs that are submitted once, however often they are sent."""
    stem = os.urandom(16).hex()
    return [{"idempotency_key": f"{stem}:{n}", **spec} for n, spec in enumerate(specs)]


def _bound(
    parameters: Sequence[Declared], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults."""
    names = [field["name"] for field in parameters]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    known = {field["name"]: field["default"] for field in parameters if "default" in field} | given
    if len(args) > len(names) or known.keys() != {*names}:
        raise NotPlain("the call is wrong")
    return known


def _value(verb: Declared, answer: Any, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the verb
    value = answer[verb["takes"]] if "takes" in verb else answer
    if "of_a_job" in verb:
        value = [{**fields, "job_id": given["job_id"]} for fields in value]
    return made(value, verb)


class PlainBackend:
    """Does the verbs of `PlainVerbs`; all others, and all from the first that is not plain, whole.

    So an error is the whole client's, which has tried again. Nothing else than what may be done
    twice is done plainly.

    Args:
        place: the server.
        whole: makes the backend for everything else.
        patience_s: the longest silence of the server, in seconds.
    """

    def __init__(
        self, place: ServerPlace, whole: Callable[[], "Backend"], *, patience_s: float = ANSWER_S
    ) -> None:
        self._verbs = PlainVerbs(Wire(place.url, place.headers, patience_s), place.owner)
        self.owner, self.slowest_s = place.owner, place.slowest_s
        self._make_whole = whole
        self._whole: Backend | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._verbs.close()
        if self._whole is not None:
            self._whole.__exit__(*exc)

    @property
    def findings(self) -> "SomeVerbs":
        """What jobs found out."""
        return SomeVerbs(self, self._verbs, lambda: self.whole().findings)

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Submit jobs, as `HttpBackend` does: a lost answer cannot duplicate them."""
        jobs = with_keys(specs)
        ids: list[int] = SomeVerbs(self, self._verbs, self.whole).submit(jobs) if jobs else []
        return ids

    def whole(self) -> "Backend":
        """Return the backend for everything else."""
        if self._whole is None:
            self._whole = self._make_whole()
        return self._whole

    def given_up(self) -> bool:
        """Tell whether everything is done whole from now on."""
        return self._whole is not None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any verb
        return getattr(SomeVerbs(self, self._verbs, self.whole), name)


class SomeVerbs:
    """Some of a backend's verbs, each done plainly if that is possible."""

    def __init__(self, backend: PlainBackend, plain: object, whole: Callable[[], Any]) -> None:
        self._backend, self._plain, self._whole = backend, plain, whole

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any verb
        plain = getattr(self._plain, name, None)
        if plain is None or self._backend.given_up():
            return getattr(self._whole(), name)

        def act(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the verb
            with suppress(NotPlain, *UNKNOWN):
                return plain(*args, **kwargs)
            return getattr(self._whole(), name)(*args, **kwargs)

        return act
