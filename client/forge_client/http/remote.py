"""A verb of the service, done by a server: the request and the answer follow its declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

from forge_schema.model.results import MOST_RUNS, Run, Runs, drawn_metric, in_order, require_columns
from forge_schema.model.stored import Stored
from forge_schema.service.findings import Findings
from forge_schema.service.verb import Parameter, Verb, item_of
from pydantic import BaseModel

from forge_client.errors import as_client_error
from forge_client.findings import PAGE
from forge_client.http.errors import rejected_job
from forge_client.http.transport import Transport


class HttpFindings(Findings):
    """Asks a server.

    Args:
        owner: whose sweeps are meant unless another's are; None is the key's owner.
    """

    def __init__(self, transport: Transport, *, owner: str | None) -> None:
        self.remote = ServerVerbs(transport, owner)

    def runs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        sort: str | None = None,
        descending: bool = False,
        curve: Sequence[str] = (),
        before: int | None = None,
        count: int = PAGE,
    ) -> Runs:
        if count <= PAGE:
            return super().runs(
                query,
                owner=owner,
                sort=sort,
                descending=descending,
                curve=curve,
                before=before,
                count=count,
            )
        # More than one answer holds: all are read, and sorted here.
        most = min(count, MOST_RUNS) if sort is None else MOST_RUNS
        runs = self._all_runs(query, owner, curve, before, most)
        if sort is None:
            return runs
        with as_client_error():
            require_columns(runs.items, [sort])
        items = in_order(runs.items, sort, descending=descending)[:count]
        return runs.model_copy(update={"items": items})

    def _all_runs(
        self, query: str, owner: str | None, curve: Sequence[str], before: int | None, most: int
    ) -> Runs:
        items: list[Run] = []
        more = True
        while more and len(items) < most:
            left = min(PAGE, most - len(items))
            runs = super().runs(query, owner=owner, curve=curve, before=before, count=left)
            items += runs.items
            # The same metric is drawn of all.
            drawn = drawn_metric(items, curve)
            curve = [drawn] if drawn else []
            more = runs.more and bool(runs.items)
            before = items[-1].job_id if items else None
        return Runs(items=items, found=len(items), more=more)


class ServerVerbs:
    """Asks a server.

    Args:
        owner: whose things are meant unless another's are; None is the key's owner.
    """

    def __init__(self, transport: Transport, owner: str | None) -> None:
        self._transport = transport
        self._owner = owner

    def __call__(self, verb: Verb, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the verb
        """Return what a verb returns.

        Raises:
            ClientError: an argument is wrong, it was refused, or nothing answers.
        """
        with as_client_error():
            arguments = verb.bound(args, kwargs)
            given = self._given(verb, arguments)
        with rejected_job() if verb.names_fields else nullcontext():
            answer = self._transport.ask(
                verb.method,
                _path(verb.path, given),
                again=verb.again,
                params=_of(given, "query"),
                json=_body(verb, given),
            )
        return self._value(verb, arguments, answer)

    def _given(self, verb: Verb, arguments: Mapping[str, Any]) -> dict[Parameter, Any]:
        """Return what is sent for each parameter. What is None by default is left out."""
        written = {
            parameter: _plain(parameter.sent.write(arguments[parameter.name], self._owner))
            for parameter in verb.parameters
            if parameter.where != "server"
        }
        return {
            parameter: value
            for parameter, value in written.items()
            if value is not None or parameter.required
        }

    def _value(self, verb: Verb, arguments: Mapping[str, Any], answer: object) -> Any:  # noqa: ANN401 - as the verb
        returns = verb.returns
        if verb.answer is not None:
            return self._transport.record(verb.answer, answer).value()
        if (item := item_of(returns)) is not None:
            if not (isinstance(item, type) and issubclass(item, BaseModel)):
                return self._transport.items(answer)
            # A stored object is asked for anew by its job, which the answer does not repeat.
            more = {"job_id": arguments["job_id"]} if issubclass(item, Stored) else {}
            return self._transport.records(item, answer, **more)
        if isinstance(returns, type) and issubclass(returns, BaseModel):
            return self._transport.record(returns, answer)
        return None if returns is None else answer


def _path(path: str, given: Mapping[Parameter, Any]) -> str:
    for parameter, value in given.items():
        if parameter.where == "path":
            before, _, rest = path.partition(f"{{{parameter.field}")
            path = f"{before}{quote(str(value), safe='')}{rest.partition('}')[2]}"
    return path


def _body(verb: Verb, given: Mapping[Parameter, Any]) -> Any:  # noqa: ANN401 - any JSON
    whole = [value for parameter, value in given.items() if parameter.where == "whole"]
    if whole:
        return whole[0]
    has_body = any(parameter.where == "body" for parameter in verb.parameters)
    return _of(given, "body") if has_body else None


def _of(given: Mapping[Parameter, Any], where: str) -> dict[str, Any]:
    return {
        parameter.field: value for parameter, value in given.items() if parameter.where == where
    }


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    is_list = isinstance(value, Collection) and not isinstance(value, str | bytes)
    return [_plain(item) for item in cast("Collection[object]", value)] if is_list else value
