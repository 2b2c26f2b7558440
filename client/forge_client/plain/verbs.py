"""The verbs of commands that are typed all day, as a server is asked for them."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from forge_schema.model.reading import FILES, LogPlaces, id_of

from forge_client.plain.place import refuse_proxied
from forge_client.plain.rows import Declared, PlainRow, made, table
from forge_client.plain.wire import NotPlain, Wire, quoted

Packed: TypeAlias = Any
"""A `project.bundle.Bundle`, which stands above."""

BUNDLES = "/api/v1/bundles"
# In bytes; a larger one is not read into memory as a whole.
LARGEST_BUNDLE = 8 << 20


class PlainVerbs(LogPlaces):
    """The verbs that `Service` declares, and the transfers of `Backend` as far as they are plain.

    Args:
        wire: the connection to the server.
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

    def artifacts(self, job_id: int) -> list[PlainRow]:
        rows: list[PlainRow] = self._do("artifacts", job_id)
        if len(rows) >= FILES:
            raise NotPlain("there are more pages")
        return rows

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
